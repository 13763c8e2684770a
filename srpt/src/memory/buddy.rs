//! A buddy allocator over offsets: constant time up to the number of sizes, no
//! allocation after construction. It knows no memory.

/// Least bytes of a block.
const UNIT: usize = 4096;
/// End of a list.
const NONE: u32 = u32::MAX;

/// What a unit is at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Not the first of a free block.
    Other,
    /// The first of a free block of so many doublings of a unit.
    Free { order: u8, next: u32, previous: u32 },
}

/// Free and taken blocks of power-of-two sizes.
#[derive(Debug)]
pub struct Buddy {
    units: Vec<Unit>,
    /// First free block of each order.
    heads: Vec<u32>,
}

impl Buddy {
    /// Blocks of up to `largest` bytes in `total` bytes, both rounded up.
    /// `None` if that is more than can be counted.
    pub fn new(total: usize, largest: usize) -> Option<Self> {
        let (total, largest) = rounded(total, largest)?;
        let per_block = largest / UNIT;
        let count = u32::try_from(total / UNIT).ok().filter(|n| *n < NONE)?;
        let orders = per_block.trailing_zeros() as usize + 1;
        let mut buddy = Self {
            units: vec![Unit::Other; count as usize],
            heads: vec![NONE; orders],
        };
        for first in (0..count).step_by(per_block).rev() {
            buddy.push(first, (orders - 1) as u8);
        }
        Some(buddy)
    }

    /// Bytes in all.
    pub fn length(&self) -> usize {
        self.units.len() * UNIT
    }

    /// Most bytes of a block.
    pub fn largest(&self) -> usize {
        UNIT << self.heads.len().saturating_sub(1)
    }

    /// Takes a block for `length` bytes; returns its offset and size.
    pub fn take(&mut self, length: usize) -> Option<(usize, usize)> {
        let wanted = order_of(length)?;
        let mut order = wanted;
        while *self.heads.get(usize::from(order))? == NONE {
            order += 1;
        }
        let unit = *self.heads.get(usize::from(order))?;
        self.unlink(unit);
        while order > wanted {
            order -= 1;
            self.push(unit + (1 << order), order);
        }
        Some((unit as usize * UNIT, UNIT << wanted))
    }

    /// Gives back a block that [`Buddy::take`] returned.
    pub fn give_back(&mut self, offset: usize, size: usize) {
        let (Ok(mut unit), Some(mut order)) = (u32::try_from(offset / UNIT), order_of(size)) else {
            return;
        };
        while usize::from(order) + 1 < self.heads.len() {
            let buddy = unit ^ (1 << order);
            if !matches!(self.units.get(buddy as usize),
                Some(Unit::Free { order: of, .. }) if *of == order)
            {
                break;
            }
            self.unlink(buddy);
            unit &= !(1 << order);
            order += 1;
        }
        self.push(unit, order);
    }

    fn push(&mut self, unit: u32, order: u8) {
        let Some(head) = self.heads.get_mut(usize::from(order)) else {
            return;
        };
        let next = std::mem::replace(head, unit);
        if let Some(Unit::Free { previous, .. }) = self.units.get_mut(next as usize) {
            *previous = unit;
        }
        if let Some(slot) = self.units.get_mut(unit as usize) {
            *slot = Unit::Free {
                order,
                next,
                previous: NONE,
            };
        }
    }

    fn unlink(&mut self, unit: u32) {
        let Some(slot) = self.units.get_mut(unit as usize) else {
            return;
        };
        let Unit::Free {
            order,
            next,
            previous,
        } = std::mem::replace(slot, Unit::Other)
        else {
            return;
        };
        if let Some(Unit::Free { previous: back, .. }) = self.units.get_mut(next as usize) {
            *back = previous;
        }
        match self.units.get_mut(previous as usize) {
            Some(Unit::Free { next: forth, .. }) => *forth = next,
            _ => {
                if let Some(head) = self.heads.get_mut(usize::from(order)) {
                    *head = next;
                }
            }
        }
    }
}

/// Bytes in all and of the largest block, as [`Buddy::new`] rounds them up.
pub fn rounded(total: usize, largest: usize) -> Option<(usize, usize)> {
    let largest = largest.max(UNIT).checked_next_power_of_two()?;
    let total = total.max(1).checked_next_multiple_of(largest)?;
    Some((total, largest))
}

/// The least order whose blocks hold `length` bytes.
fn order_of(length: usize) -> Option<u8> {
    let units = length.div_ceil(UNIT).checked_next_power_of_two()?;
    u8::try_from(units.trailing_zeros()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn taken_blocks_are_disjoint_and_all_comes_back(
            steps in prop::collection::vec((any::<bool>(), 1usize..300_000, any::<prop::sample::Index>()), 1..300)
        ) {
            let mut buddy = Buddy::new(3 << 18, 1 << 18).unwrap();
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (take, length, index) in steps {
                if take {
                    if let Some((offset, size)) = buddy.take(length) {
                        prop_assert!(size >= length && offset + size <= buddy.length());
                        prop_assert!(taken.iter().all(|(o, s)| offset + size <= *o || o + s <= offset));
                        taken.push((offset, size));
                    } else {
                        prop_assert!(length > 1 << 18 || !taken.is_empty());
                    }
                } else if !taken.is_empty() {
                    let (offset, size) = taken.swap_remove(index.index(taken.len()));
                    buddy.give_back(offset, size);
                }
            }
            for (offset, size) in taken {
                buddy.give_back(offset, size);
            }
            for _ in 0..3 {
                prop_assert!(buddy.take(1 << 18).is_some());
            }
            prop_assert!(buddy.take(1).is_none());
        }
    }
}
