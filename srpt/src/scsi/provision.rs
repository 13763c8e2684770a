//! Giving blocks back and filling them: the parameter list of UNMAP (SBC-3
//! 5.27) and the limits of UNMAP and WRITE SAME.

use super::cdb::{be16, be32, be64};
use super::command::Extent;
use super::sense::{INVALID_FIELD_IN_PARAMETERS, PARAMETER_LIST_LENGTH_ERROR};
use super::unit::Unit;
use crate::executor::Sense;

/// The most blocks that one UNMAP command may give back.
pub const MAX_UNMAP_BLOCKS: u32 = 1 << 22;
/// The most ranges that one UNMAP command may name.
pub const MAX_UNMAP_RANGES: u32 = 256;
/// The most blocks that one WRITE SAME command may fill.
pub const MAX_WRITE_SAME_BLOCKS: u32 = 1 << 16;

/// Bytes before the first range of a parameter list.
const HEADER: usize = 8;
/// Bytes of a range.
const RANGE: usize = 16;

/// The longest parameter list that is asked for.
pub const MAX_LIST: u32 = HEADER as u32 + MAX_UNMAP_RANGES * RANGE as u32;

/// The ranges of an UNMAP parameter list, all checked: an error means that
/// nothing is given back.
///
/// # Errors
/// What is wrong with the list.
pub fn ranges(list: &[u8], unit: &Unit) -> Result<Vec<Extent>, Sense> {
    if list.len() < HEADER {
        return Err(PARAMETER_LIST_LENGTH_ERROR);
    }
    let descriptors = usize::from(be16(list, 2));
    let end = HEADER + descriptors;
    if descriptors % RANGE != 0 || end > list.len() || usize::from(be16(list, 0)) + 2 < end {
        return Err(INVALID_FIELD_IN_PARAMETERS);
    }
    if descriptors / RANGE > MAX_UNMAP_RANGES as usize {
        return Err(INVALID_FIELD_IN_PARAMETERS);
    }
    let mut total = 0;
    let mut ranges = Vec::with_capacity(descriptors / RANGE);
    for at in (HEADER..end).step_by(RANGE) {
        let (first, count) = (be64(list, at), u64::from(be32(list, at + 8)));
        total += count;
        if total > u64::from(MAX_UNMAP_BLOCKS) {
            return Err(INVALID_FIELD_IN_PARAMETERS);
        }
        let extent = Extent::new(unit, first, count)?;
        if extent.length > 0 {
            ranges.push(extent);
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::super::unit::Identity;
    use super::*;

    fn unit() -> Unit {
        Unit::new(512, 1 << 20, Identity::from_serial("x"))
    }

    fn list(ranges: &[(u64, u32)]) -> Vec<u8> {
        let length = ranges.len() * RANGE;
        let mut list = (length as u16 + 6).to_be_bytes().to_vec();
        list.extend((length as u16).to_be_bytes());
        list.extend([0; 4]);
        for (first, count) in ranges {
            list.extend(first.to_be_bytes());
            list.extend(count.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }

    #[test]
    fn ranges_become_extents_in_bytes() {
        let found = ranges(&list(&[(0, 8), (2047, 1), (5, 0)]), &unit()).unwrap();
        let pairs: Vec<_> = found.iter().map(|e| (e.offset, e.length)).collect();
        assert_eq!(pairs, [(0, 4096), (2047 * 512, 512)]);
    }

    #[test]
    fn a_range_beyond_the_end_spoils_all() {
        for bad in [(2048, 1), (2047, 2), (u64::MAX, u32::MAX), (u64::MAX, 1)] {
            assert!(ranges(&list(&[(0, 1), bad]), &unit()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let good = list(&[(0, 1)]);
        for cut in 0..good.len() {
            assert!(ranges(&good[..cut], &unit()).is_err(), "{cut}");
        }
        let mut odd = good.clone();
        odd[3] = 15;
        assert_eq!(ranges(&odd, &unit()), Err(INVALID_FIELD_IN_PARAMETERS));
        let mut short = good;
        short[1] = 3;
        assert_eq!(ranges(&short, &unit()), Err(INVALID_FIELD_IN_PARAMETERS));
    }

    #[test]
    fn limits_hold() {
        let big = Unit::new(512, 1 << 50, Identity::from_serial("x"));
        assert!(ranges(&list(&[(0, MAX_UNMAP_BLOCKS)]), &big).is_ok());
        assert!(ranges(&list(&[(0, MAX_UNMAP_BLOCKS), (0, 1)]), &big).is_err());
        let many = vec![(0, 1); MAX_UNMAP_RANGES as usize];
        assert!(ranges(&list(&many), &big).is_ok());
        let more = vec![(0, 1); MAX_UNMAP_RANGES as usize + 1];
        assert!(ranges(&list(&more), &big).is_err());
    }
}
