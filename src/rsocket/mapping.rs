//! Memory of the program that the peer may write to (`riomap`): which there
//! is, under which offset and index, and what the peer is still to be told.

use std::collections::VecDeque;

use super::memory::Registration;
use super::wire::{Mapping, Target};
use crate::error::{Error, Result};

/// A range of the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Address.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
}

#[derive(Debug)]
struct Exposed {
    range: Range,
    /// Place in the peer's list; `None` if it is registered only.
    index: Option<u16>,
    _registration: Registration,
}

/// What the peer is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Place in its list.
    pub index: u16,
    /// The entry.
    pub mapping: Mapping,
}

/// The program's exposed memory.
#[derive(Debug, Default)]
pub struct Mappings {
    exposed: Vec<Exposed>,
    announcements: VecDeque<Announcement>,
}

impl Mappings {
    /// The lowest index that is free, for a peer with room for `count`.
    ///
    /// # Errors
    /// `ENOMEM` if all are in use.
    pub fn free_index(&self, count: u16) -> Result<u16> {
        (0..count)
            .find(|index| !self.exposed.iter().any(|other| other.index == Some(*index)))
            .ok_or(Error::new(libc::ENOMEM, "map more than the peer allows"))
    }

    /// Adds registered memory, and announces it under `offset` if it has an
    /// index.
    pub fn add(
        &mut self,
        range: Range,
        registration: Registration,
        index: Option<u16>,
        offset: u64,
    ) {
        if let Some(index) = index {
            self.announcements.push_back(Announcement {
                index,
                mapping: Mapping {
                    offset,
                    memory: Target {
                        addr: range.addr,
                        key: registration.remote_key(),
                        length: range.length,
                    },
                },
            });
        }
        self.exposed.push(Exposed {
            range,
            index,
            _registration: registration,
        });
    }

    /// Withdraws memory: the peer is told that nothing is there any more.
    /// What is returned keeps it registered until dropped.
    ///
    /// # Errors
    /// `EINVAL` unless exactly this range was added.
    pub fn remove(&mut self, range: Range) -> Result<impl Drop + use<>> {
        let place = self
            .exposed
            .iter()
            .position(|exposed| exposed.range == range)
            .ok_or(Error::invalid("unmap what is not mapped"))?;
        let exposed = self.exposed.swap_remove(place);
        if let Some(index) = exposed.index {
            self.announcements.push_back(Announcement {
                index,
                mapping: Mapping::default(),
            });
        }
        Ok(exposed._registration)
    }

    /// Whether the peer is to be told anything.
    pub fn has_news(&self) -> bool {
        !self.announcements.is_empty()
    }

    /// What the peer is to be told next.
    pub fn next(&self) -> Option<Announcement> {
        self.announcements.front().copied()
    }

    /// The peer was told.
    pub fn announced(&mut self) {
        self.announcements.pop_front();
    }
}

/// Where in a mapping `offset` lies: the memory from there to its end.
pub fn locate(mapping: &Mapping, offset: u64) -> Option<Target> {
    let skip = offset.checked_sub(mapping.offset)?;
    let left = u64::from(mapping.memory.length).checked_sub(skip)?;
    let length = u32::try_from(left).ok().filter(|length| *length > 0)?;
    Some(Target {
        addr: mapping.memory.addr.wrapping_add(skip),
        key: mapping.memory.key,
        length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_found_up_to_the_end_and_not_beyond() {
        let mapping = Mapping {
            offset: 100,
            memory: Target {
                addr: 5000,
                key: 9,
                length: 10,
            },
        };
        assert_eq!(locate(&mapping, 99), None);
        assert_eq!(locate(&mapping, 110), None);
        let found = locate(&mapping, 107).unwrap();
        assert_eq!((found.addr, found.length), (5007, 3));
        assert_eq!(locate(&Mapping::default(), 0), None);
    }
}
