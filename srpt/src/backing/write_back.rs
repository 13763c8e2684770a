//! Failures to bring written data to stable storage. All channels reach a disk
//! by one descriptor, and the kernel tells of each failure only once on it: here
//! it is remembered for the others. Knows no requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often data of a disk was lost. Shared by all who write to it.
#[derive(Clone, Debug, Default)]
pub struct Losses(Arc<AtomicU64>);

/// What one channel knows of a disk's losses.
#[derive(Debug)]
pub struct Watch {
    losses: Losses,
    known: u64,
}

impl Losses {
    /// Knows of all losses so far: what was lost before is not the channel's.
    pub fn watch(&self) -> Watch {
        Watch {
            losses: self.clone(),
            known: self.0.load(Ordering::Acquire),
        }
    }
}

impl Watch {
    /// The kernel has reported a loss to this channel.
    pub fn report(&mut self) {
        self.known = self.losses.0.fetch_add(1, Ordering::AcqRel) + 1;
    }

    /// Whether there was a loss that this channel has not been told of yet.
    pub fn take(&mut self) -> bool {
        let losses = self.losses.0.load(Ordering::Acquire);
        std::mem::replace(&mut self.known, losses) != losses
    }
}

/// Whether a flush that failed with `errno` tells of lost data. The others were
/// not carried out.
pub fn is_loss(errno: i32) -> bool {
    !matches!(
        errno,
        libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ECANCELED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_hears_of_a_loss_once() {
        let losses = Losses::default();
        let (mut first, mut second) = (losses.watch(), losses.watch());
        assert!(!first.take() && !second.take());
        first.report();
        assert!(!first.take(), "it was told by the kernel");
        assert!(second.take());
        assert!(!second.take());
        assert!(!losses.watch().take(), "who comes later has lost nothing");
        second.report();
        second.report();
        assert!(first.take());
        assert!(!first.take() && !second.take());
    }

    #[test]
    fn a_flush_that_was_not_carried_out_has_lost_nothing() {
        assert!(is_loss(libc::EIO) && is_loss(libc::ENOSPC));
        assert!(!is_loss(libc::ECANCELED) && !is_loss(libc::EAGAIN));
    }
}
