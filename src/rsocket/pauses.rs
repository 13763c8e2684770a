//! Descriptors that the service thread leaves alone for a while: they are readable,
//! but what there is to be read could not be had, as the kernel is short of memory
//! for example. The more often that happens in a row, the longer it takes.

use std::os::fd::RawFd;
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::watched::Watched;

/// The first pause; each further one takes twice as long.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// The longest.
const LONGEST: Duration = Duration::from_secs(1);

/// The descriptors, and those that were left alone last time.
#[derive(Default)]
pub struct Pauses(Vec<Pause>);

struct Pause {
    fd: RawFd,
    object: Weak<dyn Watched>,
    length: Duration,
    /// `None` once it is over.
    end: Option<Instant>,
}

impl Pauses {
    /// From `now` on, the descriptor `fd` of `object` is left alone.
    pub fn begin(&mut self, fd: RawFd, object: Weak<dyn Watched>, now: Instant) {
        let same = |pause: &Pause| pause.fd == fd && pause.object.ptr_eq(&object);
        let last = self.0.iter().find(|pause| same(pause));
        let length = last.map_or(SHORTEST, |last| last.length.saturating_mul(2).min(LONGEST));
        self.forget(fd);
        self.0.push(Pause {
            fd,
            object,
            length,
            end: now.checked_add(length),
        });
    }

    /// The descriptor was handled.
    pub fn forget(&mut self, fd: RawFd) {
        self.0.retain(|pause| pause.fd != fd);
    }

    /// Whether nothing is, or was last time, left alone: the rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the first pause is over.
    pub fn next_end(&self) -> Option<Instant> {
        self.0.iter().filter_map(|pause| pause.end).min()
    }

    /// Takes what is to be watched again at `now`, with whose it was.
    pub fn take_over(&mut self, now: Instant) -> Vec<(RawFd, Weak<dyn Watched>)> {
        self.0.retain(|pause| pause.object.strong_count() > 0);
        let over = self.0.iter_mut().filter_map(|pause| {
            pause.end.take_if(|end| *end <= now)?;
            Some((pause.fd, Weak::clone(&pause.object)))
        });
        over.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::watched::Next;
    use super::*;

    struct Object;

    impl Watched for Object {
        fn handle(self: Arc<Self>, _: RawFd) -> Next {
            Next::Watch
        }
    }

    fn known(object: &Arc<Object>) -> Weak<dyn Watched> {
        let object: Weak<Object> = Arc::downgrade(object);
        object
    }

    #[test]
    fn pauses_in_a_row_grow_up_to_the_longest() {
        let (mut pauses, object) = (Pauses::default(), Arc::new(Object));
        let mut now = Instant::now();
        let mut length = SHORTEST;
        for _ in 0..20 {
            pauses.begin(7, known(&object), now);
            assert_eq!(pauses.next_end(), Some(now + length));
            assert!(pauses.take_over(now).is_empty());
            now += length;
            assert_eq!(pauses.take_over(now).len(), 1);
            assert_eq!(pauses.next_end(), None);
            length = LONGEST.min(2 * length);
        }
        assert_eq!(length, LONGEST);
        pauses.forget(7);
        pauses.begin(7, known(&object), now);
        assert_eq!(pauses.next_end(), Some(now + SHORTEST));
    }

    #[test]
    fn a_pause_is_of_one_object_and_gone_with_it() {
        let (mut pauses, old, new) = (Pauses::default(), Arc::new(Object), Arc::new(Object));
        let now = Instant::now();
        pauses.begin(7, known(&old), now);
        pauses.begin(7, known(&new), now);
        assert_eq!(pauses.next_end(), Some(now + SHORTEST));
        pauses.begin(8, known(&old), now);
        drop(old);
        let over = pauses.take_over(now + SHORTEST);
        let fds: Vec<_> = over.iter().map(|(fd, _)| *fd).collect();
        assert_eq!(fds, [7]);
    }
}
