//! The route of a stream as programs see it (`RDMA_ROUTE`): path records in
//! the form of `struct ibv_path_data`, and the size of a packet on it.

use std::ffi::c_int;

use crate::abi::{RDMA_OPTION_IB, RDMA_OPTION_IB_PATH};
use crate::cm::id::Id;
use crate::cm::{option, query};
use crate::error::Result;
use crate::verbs::bindings::ibv_sa_path_rec;

/// Bytes of a path record with its flags.
pub const RECORD_LEN: usize = 72;
/// Records that a program may give at once; the kernel looks at one, and others take a
/// few.
pub const MOST_RECORDS: usize = 64;
/// Bytes of a packet where no route is known.
const UNKNOWN_MTU: c_int = 2048;
/// In the two highest bits of a limit: it is exactly this.
const EXACTLY: u8 = 2 << 6;
/// Bit of a path that leads both ways, and the count of one path.
const REVERSIBLE: u8 = 1 << 7;
const ONE_PATH: u8 = 1;

/// Gives the kernel path records, which ends route resolution.
///
/// # Errors
/// What the kernel says.
pub fn set(id: &Id, records: &[u8]) -> Result<()> {
    let value = records.as_ptr().cast();
    option::set(
        id,
        RDMA_OPTION_IB,
        RDMA_OPTION_IB_PATH,
        value,
        records.len(),
    )
}

/// The records of the route that was resolved; none before.
pub fn records(id: &Id) -> Vec<u8> {
    query::paths_of(id).iter().flat_map(record).collect()
}

/// Bytes that a packet on the route carries.
pub fn packet_length(id: &Id) -> c_int {
    match query::paths_of(id).first().map(|path| path.mtu & 0x3F) {
        Some(mtu @ 1..=5) => 128 << mtu,
        _ => UNKNOWN_MTU,
    }
}

/// As `struct ibv_path_data`: its flags are the preference, for want of any
/// others.
fn record(path: &ibv_sa_path_rec) -> Vec<u8> {
    let hops = u32::from_be(path.flow_label) << 8 | u32::from(path.hop_limit);
    let reversible = if path.reversible != 0 { REVERSIBLE } else { 0 };
    // SAFETY: every member of the union is 16 plain bytes.
    let (dgid, sgid) = unsafe { (path.dgid.raw, path.sgid.raw) };
    let fields: [&[u8]; 17] = [
        &u32::from(path.preference).to_ne_bytes(),
        &[0; 4],
        // Service identifier: for all.
        &[0; 8],
        &dgid,
        &sgid,
        // In network order already.
        &path.dlid.to_ne_bytes(),
        &path.slid.to_ne_bytes(),
        &hops.to_be_bytes(),
        &[path.traffic_class],
        &[reversible | ONE_PATH],
        &path.pkey.to_ne_bytes(),
        &u16::from(path.sl).to_be_bytes(),
        &[path.mtu | EXACTLY],
        &[path.rate | EXACTLY],
        &[path.packet_life_time | EXACTLY],
        &[path.preference],
        &[0; 6],
    ];
    fields.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::bindings::{ibv_path_data, ibv_path_record};
    use std::mem::{MaybeUninit, offset_of};

    #[test]
    fn fields_lie_where_the_structure_has_them() {
        // SAFETY: plain numbers, for which zero is valid.
        let mut path: ibv_sa_path_rec = unsafe { MaybeUninit::zeroed().assume_init() };
        path.dlid = 0x1234u16.to_be();
        path.flow_label = 0x54321u32.to_be();
        path.hop_limit = 64;
        path.reversible = 1;
        path.sl = 3;
        path.mtu = 4;
        path.preference = 7;
        let bytes = record(&path);
        assert_eq!(bytes.len(), RECORD_LEN);
        assert_eq!(bytes.len(), size_of::<ibv_path_data>());
        let at = |offset: usize| &bytes[offset_of!(ibv_path_data, path) + offset..];
        assert_eq!(at(offset_of!(ibv_path_record, dlid))[..2], [0x12, 0x34]);
        let hops = at(offset_of!(ibv_path_record, flowlabel_hoplimit));
        assert_eq!(hops[..4], [0x05, 0x43, 0x21, 64]);
        let reversible = at(offset_of!(ibv_path_record, reversible_numpath));
        assert_eq!(reversible[0], 0x81);
        let sl = at(offset_of!(ibv_path_record, qosclass_sl));
        assert_eq!(sl[..2], [0, 3]);
        assert_eq!(at(offset_of!(ibv_path_record, mtu))[0], 0x84);
        assert_eq!(at(offset_of!(ibv_path_record, preference))[0], 7);
    }
}
