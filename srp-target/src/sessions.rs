//! Sessions: how many there are, and what each has not been told yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use srpt::scsi::attention::{Attention, News};
use srpt::wire::PortId;

/// One initiator port's session; kept by its channels' executors.
#[derive(Debug)]
pub struct Session {
    initiator: PortId,
    /// By index of the disk.
    attention: Vec<Attention>,
}

/// All sessions.
#[derive(Debug)]
pub struct Sessions {
    by_number: Mutex<HashMap<u64, Weak<Session>>>,
    most: usize,
    disks: usize,
}

impl Session {
    /// News about the disk with this index.
    pub fn attention(&self, disk: usize) -> Option<&Attention> {
        self.attention.get(disk)
    }
}

impl Sessions {
    /// None yet, at most `most`, with so many disks each.
    pub fn new(most: usize, disks: usize) -> Self {
        Self {
            by_number: Mutex::default(),
            most,
            disks,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.alive().len()
    }

    /// The session with this number, a new one if there is none and there is
    /// room. An initiator has one session: what it had before is replaced,
    /// however long that may take to end, and takes no room.
    pub fn join(&self, number: u64, initiator: PortId) -> Option<Arc<Session>> {
        let mut alive = self.alive();
        if let Some(session) = alive.get(&number).and_then(Weak::upgrade) {
            return Some(session);
        }
        let others: HashSet<_> = alive
            .values()
            .filter_map(Weak::upgrade)
            .map(|session| session.initiator)
            .filter(|other| *other != initiator)
            .collect();
        if others.len() >= self.most {
            return None;
        }
        let attention: Vec<_> = (0..self.disks).map(|_| Attention::default()).collect();
        for attention in &attention {
            attention.raise(News::PowerOn);
        }
        let session = Arc::new(Session {
            initiator,
            attention,
        });
        alive.insert(number, Arc::downgrade(&session));
        Some(session)
    }

    /// Has every session told news about a disk.
    pub fn announce(&self, disk: usize, news: News) {
        for session in self.alive().values().filter_map(Weak::upgrade) {
            if let Some(attention) = session.attention(disk) {
                attention.raise(news);
            }
        }
    }

    /// Does something while nobody else gets at the sessions.
    #[cfg(test)]
    pub fn while_locked(&self, action: impl FnOnce()) {
        let _alive = self.alive();
        action();
    }

    /// The table without those that are gone.
    fn alive(&self) -> MutexGuard<'_, HashMap<u64, Weak<Session>>> {
        let mut table = self
            .by_number
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, session| session.strong_count() > 0);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIATORS: [PortId; 3] = [PortId([1; 16]), PortId([2; 16]), PortId([3; 16])];

    #[test]
    fn channels_share_a_session_and_sessions_have_a_limit() {
        let [a, b, c] = INITIATORS;
        let sessions = Sessions::new(2, 1);
        let first = sessions.join(1, a).unwrap();
        let again = sessions.join(1, a).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let second = sessions.join(2, b).unwrap();
        assert!(sessions.join(3, c).is_none());
        drop(second);
        assert_eq!(sessions.count(), 1);
        assert!(sessions.join(3, c).is_some());
    }

    #[test]
    fn a_session_that_is_replaced_takes_no_room() {
        let [a, b, c] = INITIATORS;
        let sessions = Sessions::new(2, 1);
        let _other = sessions.join(1, a).unwrap();
        let _stuck = sessions.join(2, b).unwrap();
        let _stuck_as_well = sessions.join(3, b).unwrap();
        let newest = sessions.join(4, b).unwrap();
        assert!(sessions.join(5, c).is_none());
        assert!(Arc::ptr_eq(&newest, &sessions.join(4, b).unwrap()));
    }

    #[test]
    fn every_session_hears_the_news() {
        let sessions = Sessions::new(2, 2);
        let [a, b, _] = INITIATORS;
        let both = [sessions.join(1, a).unwrap(), sessions.join(2, b).unwrap()];
        for session in &both {
            let attention = session.attention(1).unwrap();
            assert!(attention.take(0x28).is_some(), "power on");
            assert!(attention.take(0x28).is_none());
        }
        sessions.announce(1, News::Resized);
        for session in &both {
            assert!(session.attention(1).unwrap().take(0x28).is_some());
        }
    }
}
