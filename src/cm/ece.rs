//! Enhanced connection establishment: vendor options that both sides of a
//! connection exchange and hand to their queue pairs.
//!
//! The options mean something to the devices' drivers only. A driver without
//! them is no error at any step.

use crate::error::{Error, Result};
use crate::kernel::ucma::Ece;
use crate::verbs;
use crate::verbs::bindings::{ibv_ece, ibv_qp, ibv_query_ece, ibv_set_ece};

use super::id::Id;

/// What our driver and the peer's offer.
#[derive(Clone, Copy, Debug, Default)]
pub struct EcePair {
    local: Ece,
    remote: Ece,
    reply: Option<Ece>,
}

impl EcePair {
    /// Remembers what the peer's message carried.
    pub fn set_remote(&mut self, remote: Ece) {
        self.remote = remote;
    }

    /// Offers `ece`, whatever the driver says of the queue pair.
    pub fn set_local(&mut self, ece: Ece) {
        self.local = ece;
    }

    /// Answers with `ece` instead of what follows from both sides' options.
    pub fn set_reply(&mut self, ece: Ece) {
        self.reply = Some(ece);
    }

    /// What a connection request carries.
    pub fn for_request(&self) -> Ece {
        self.local
    }

    /// What the answer to a connection request carries: our options under the
    /// vendor that the peer asked for.
    pub fn for_reply(&self) -> Ece {
        self.reply.unwrap_or(Ece {
            vendor_id: self.remote.vendor_id,
            attr_mod: self.local.attr_mod,
        })
    }

    /// What a queue pair is set to for the request that it answers, if the
    /// request carried anything: the peer's options, or none where the peer
    /// has another vendor.
    fn for_passive_qp(&self) -> Option<Ece> {
        if self.remote.vendor_id == 0 {
            None
        } else if self.remote.vendor_id == self.local.vendor_id {
            Some(self.remote)
        } else {
            Some(self.local_without_options())
        }
    }

    /// What a queue pair is set to after the peer's response. A response with
    /// another vendor answers something that was never asked.
    fn for_active_qp(&self) -> Result<Ece> {
        if self.remote.vendor_id == 0 {
            Ok(self.local_without_options())
        } else if self.remote.vendor_id == self.local.vendor_id {
            Ok(self.remote)
        } else {
            Err(Error::invalid("agree on ECE: the peer has another vendor"))
        }
    }

    fn local_without_options(&self) -> Ece {
        Ece {
            vendor_id: self.local.vendor_id,
            attr_mod: 0,
        }
    }
}

/// Sets what a later connection offers, for a program that manages its own
/// queue pair.
///
/// # Errors
/// `EINVAL` if the identifier has a queue pair, for vendor 0, and for a
/// `comp_mask` other than 0.
pub fn set_local(id: &Id, ece: ibv_ece) -> Result<()> {
    if !id.qp().is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
        return Err(Error::invalid("set the local ECE"));
    }
    id.state().ece.local = Ece {
        vendor_id: ece.vendor_id,
        attr_mod: ece.options,
    };
    Ok(())
}

/// What the peer offered, for a program that manages its own queue pair.
///
/// # Errors
/// `EINVAL` if the identifier has a queue pair.
pub fn remote(id: &Id) -> Result<ibv_ece> {
    if !id.qp().is_null() {
        return Err(Error::invalid("get the remote ECE"));
    }
    Ok(to_verbs(id.state().ece.remote))
}

/// After a queue pair was created: learns what the driver offers, and sets
/// what the connection request carried.
///
/// # Errors
/// What libibverbs says.
pub(super) fn after_create(id: &Id, qp: *mut ibv_qp) -> Result<()> {
    let local = query(qp)?;
    let pair = {
        let mut state = id.state();
        state.ece.local = local;
        state.ece
    };
    match pair.for_passive_qp() {
        Some(ece) => set(qp, ece),
        None => Ok(()),
    }
}

/// After the peer's response: sets what it carried.
///
/// # Errors
/// `EINVAL` if the peer answered with another vendor, else what libibverbs
/// says.
pub(super) fn after_response(id: &Id, qp: *mut ibv_qp) -> Result<()> {
    let pair = id.state().ece;
    set(qp, pair.for_active_qp()?)
}

/// After a queue pair was moved: learns which options the driver took.
///
/// # Errors
/// What libibverbs says.
pub(super) fn refresh(id: &Id, qp: *mut ibv_qp) -> Result<()> {
    let ece = query(qp)?;
    id.state().ece.local.attr_mod = ece.attr_mod;
    Ok(())
}

/// Like [`refresh`], where the peer's options were set before.
///
/// # Errors
/// What libibverbs says.
pub(super) fn refresh_passive(id: &Id, qp: *mut ibv_qp) -> Result<()> {
    let asked = id.state().ece.remote.vendor_id != 0;
    if asked { refresh(id, qp) } else { Ok(()) }
}

fn to_verbs(ece: Ece) -> ibv_ece {
    ibv_ece {
        vendor_id: ece.vendor_id,
        options: ece.attr_mod,
        comp_mask: 0,
    }
}

fn query(qp: *mut ibv_qp) -> Result<Ece> {
    let mut ece = to_verbs(Ece::default());
    // SAFETY: the caller holds the lock of the living queue pair.
    let status = unsafe { ibv_query_ece(qp, &mut ece) };
    tolerate(status, "query the ECE of a queue pair")?;
    Ok(Ece {
        vendor_id: ece.vendor_id,
        attr_mod: ece.options,
    })
}

fn set(qp: *mut ibv_qp, ece: Ece) -> Result<()> {
    if ece.vendor_id == 0 {
        return Ok(());
    }
    let mut ece = to_verbs(ece);
    // SAFETY: the caller holds the lock of the living queue pair.
    let status = unsafe { ibv_set_ece(qp, &mut ece) };
    tolerate(status, "set the ECE of a queue pair")
}

fn tolerate(status: i32, step: &'static str) -> Result<()> {
    match status {
        0 | libc::EOPNOTSUPP => Ok(()),
        status => Err(verbs::failure(status, step)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ece(vendor_id: u32, attr_mod: u32) -> Ece {
        Ece {
            vendor_id,
            attr_mod,
        }
    }

    #[test]
    fn no_vendor_leaves_a_passive_queue_pair_alone() {
        let pair = EcePair {
            local: ece(5, 7),
            remote: ece(0, 3),
            reply: None,
        };
        assert_eq!(pair.for_passive_qp(), None);
        assert_eq!(pair.for_active_qp(), Ok(ece(5, 0)));
    }

    #[test]
    fn the_same_vendor_takes_the_peers_options() {
        let pair = EcePair {
            local: ece(5, 7),
            remote: ece(5, 3),
            reply: None,
        };
        assert_eq!(pair.for_passive_qp(), Some(ece(5, 3)));
        assert_eq!(pair.for_active_qp(), Ok(ece(5, 3)));
        assert_eq!(pair.for_reply(), ece(5, 7));
    }

    #[test]
    fn another_vendor_gets_no_options_or_an_error() {
        let pair = EcePair {
            local: ece(5, 7),
            remote: ece(6, 3),
            reply: None,
        };
        assert_eq!(pair.for_passive_qp(), Some(ece(5, 0)));
        assert_eq!(
            pair.for_active_qp().map_err(|error| error.errno()),
            Err(libc::EINVAL)
        );
        assert_eq!(pair.for_reply(), ece(6, 7));
    }
}
