//! Which objects are alive: the table that turns a number from the kernel or
//! a pointer from a program into an object, or into a refusal.
//!
//! The tables own one reference to each object, so a stale number or pointer
//! is never dereferenced. They are sharded: connections on different threads
//! do not meet on one lock.

use std::collections::BTreeMap;

use crate::fork::{AcrossFork, Held};
use crate::lock::{RwLock, RwLockReadGuard, RwLockWriteGuard, clean};

const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 4;

/// A concurrent map from a number (an address or a kernel handle) to a value.
#[derive(Debug)]
pub struct Registry<V> {
    shards: [RwLock<Shard<V>>; SHARDS],
}

/// How many entries of a shard need no memory of their own. Most programs have
/// no more objects of a kind at a time than all shards together hold so.
const FEW: usize = 4;

/// A part of the map. An empty one holds no memory.
#[derive(Debug)]
struct Shard<V> {
    few: [Option<(u64, V)>; FEW],
    more: BTreeMap<u64, V>,
}

impl<V> Shard<V> {
    const fn new() -> Self {
        Self {
            few: [const { None }; FEW],
            more: BTreeMap::new(),
        }
    }

    fn get(&self, key: u64) -> Option<&V> {
        let found = self.few.iter().flatten().find(|(own, _)| *own == key);
        match found {
            Some((_, value)) => Some(value),
            None if self.more.is_empty() => None,
            None => self.more.get(&key),
        }
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let found = self.few.iter_mut().flatten().find(|(own, _)| *own == key);
        match found {
            Some((_, value)) => Some(value),
            None => self.more.get_mut(&key),
        }
    }

    fn insert(&mut self, key: u64, value: V) {
        if let Some(present) = self.get_mut(key) {
            *present = value;
        } else if let Some(free) = self.few.iter_mut().find(|entry| entry.is_none()) {
            *free = Some((key, value));
        } else {
            self.more.insert(key, value);
        }
    }

    fn remove(&mut self, key: u64) -> Option<V> {
        let mut few = self.few.iter_mut();
        let found = few.find(|entry| entry.as_ref().is_some_and(|(own, _)| *own == key));
        if let Some(entry) = found {
            return entry.take().map(|(_, value)| value);
        }
        let value = self.more.remove(&key)?;
        // An empty map would keep its last node.
        if self.more.is_empty() {
            self.more = BTreeMap::new();
        }
        Some(value)
    }
}

impl<V> Registry<V> {
    /// An empty registry.
    pub const fn new() -> Self {
        Self {
            shards: [const { RwLock::new(Shard::new()) }; SHARDS],
        }
    }

    fn shard(&self, key: u64) -> Option<&RwLock<Shard<V>>> {
        // Addresses differ in their middle bits, handles in their low ones; the
        // highest of this product depend on all of them.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.shards.get((hash >> (u64::BITS - SHARD_BITS)) as usize)
    }

    fn read(&self, key: u64) -> Option<RwLockReadGuard<'_, Shard<V>>> {
        Some(clean(self.shard(key)?.read()))
    }

    fn write(&self, key: u64) -> Option<RwLockWriteGuard<'_, Shard<V>>> {
        Some(clean(self.shard(key)?.write()))
    }

    /// Registers `value` under `key`, replacing what was there.
    pub fn insert(&self, key: u64, value: V) {
        if let Some(mut shard) = self.write(key) {
            shard.insert(key, value);
        }
    }

    /// Removes and returns what `key` stands for.
    pub fn remove(&self, key: u64) -> Option<V> {
        self.write(key)?.remove(key)
    }

    /// Whether `key` stands for anything.
    pub fn contains(&self, key: u64) -> bool {
        self.read(key).is_some_and(|shard| shard.get(key).is_some())
    }
}

/// Several values to a key, in the order in which they were added.
impl<V> Registry<Vec<V>> {
    /// Adds `value` behind what `key` stands for already.
    pub fn push(&self, key: u64, value: V) {
        let Some(mut shard) = self.write(key) else {
            return;
        };
        match shard.get_mut(key) {
            Some(values) => values.push(value),
            None => shard.insert(key, vec![value]),
        }
    }

    /// Removes those values of `key` that are not to be kept.
    pub fn retain(&self, key: u64, keep: impl FnMut(&V) -> bool) {
        if let Some(mut shard) = self.write(key)
            && let Some(values) = shard.get_mut(key)
        {
            values.retain(keep);
            if values.is_empty() {
                shard.remove(key);
            }
        }
    }
}

impl<V: Clone> Registry<V> {
    /// What `key` stands for.
    pub fn get(&self, key: u64) -> Option<V> {
        self.read(key)?.get(key).cloned()
    }
}

impl<V: Send + Sync + 'static> AcrossFork for Registry<V> {
    fn hold(&'static self) -> Held {
        let shards: Vec<_> = self.shards.iter().map(AcrossFork::hold).collect();
        Box::new(shards)
    }
}

impl<V> Default for Registry<V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_until_removed() {
        let registry = Registry::new();
        for key in 0..1000 {
            registry.insert(key, key * 2);
        }
        assert_eq!(registry.get(999), Some(1998));
        assert_eq!(registry.remove(999), Some(1998));
        assert_eq!(registry.get(999), None);
        assert_eq!(registry.remove(999), None);
    }

    #[test]
    fn addresses_and_handles_spread_over_the_shards() {
        for step in [1, 16, 48, 4096, 1232] {
            let registry = Registry::new();
            for key in 0..1600 {
                registry.insert(0x5555_0000_0000 + key * step, ());
            }
            for shard in &registry.shards {
                let shard = clean(shard.read());
                let count = shard.few.iter().flatten().count() + shard.more.len();
                assert!((50..=200).contains(&count), "{count} at step {step}");
            }
        }
    }

    #[test]
    fn a_new_value_takes_the_place_of_the_old() {
        let registry = Registry::new();
        for round in 0..2 {
            for key in 0..1000 {
                registry.insert(key, key + round);
            }
        }
        assert!((0..1000).all(|key| registry.remove(key) == Some(key + 1)));
        assert!((0..1000).all(|key| !registry.contains(key)));
    }

    #[test]
    fn a_reused_key_has_both_owners_until_the_old_one_leaves() {
        let registry = Registry::new();
        registry.push(7, "old");
        registry.push(7, "new");
        assert_eq!(registry.get(7), Some(vec!["old", "new"]));
        registry.retain(7, |value| *value != "old");
        assert_eq!(registry.get(7), Some(vec!["new"]));
        registry.retain(7, |value| *value != "new");
        assert_eq!(registry.get(7), None);
    }
}
