//! Queue pair attributes, address handles and path records as the kernel
//! writes them, and their conversions to libibverbs' structures.
//!
//! The rules are those of `<rdma/ib_user_verbs.h>` and `<rdma/ib_user_sa.h>`
//! on one side and `<infiniband/verbs.h>` and `<infiniband/sa.h>` on the
//! other. Which attributes a queue pair gets when is not decided here.

use super::addr::Gid;
use super::command::Reply;
use super::plain::wire;
use crate::verbs::bindings::{
    ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap, ibv_sa_path_rec,
};

wire! {
    /// Address handle attributes (`struct ib_uverbs_ah_attr`).
    pub struct AhAttr: 32 {
        /// GID of the destination.
        pub dgid: Gid = 0,
        /// Flow label.
        pub flow_label: u32 = 16,
        /// Index of the local GID.
        pub sgid_index: u8 = 20,
        /// Hop limit.
        pub hop_limit: u8 = 21,
        /// Traffic class.
        pub traffic_class: u8 = 22,
        /// Unused.
        pub reserved: u8 = 23,
        /// LID of the destination.
        pub dlid: u16 = 24,
        /// Service level.
        pub sl: u8 = 26,
        /// Local path bits.
        pub src_path_bits: u8 = 27,
        /// Static rate.
        pub static_rate: u8 = 28,
        /// Whether the global fields (GID to traffic class) count.
        pub is_global: u8 = 29,
        /// Local port.
        pub port_num: u8 = 30,
        /// Unused.
        pub reserved2: u8 = 31,
    }

    /// Queue pair attributes (`struct ib_uverbs_qp_attr`).
    pub struct QpAttr: 144 {
        qp_attr_mask: u32 = 0,
        qp_state: u32 = 4,
        cur_qp_state: u32 = 8,
        path_mtu: u32 = 12,
        path_mig_state: u32 = 16,
        qkey: u32 = 20,
        rq_psn: u32 = 24,
        sq_psn: u32 = 28,
        dest_qp_num: u32 = 32,
        qp_access_flags: u32 = 36,
        ah_attr: AhAttr = 40,
        alt_ah_attr: AhAttr = 72,
        max_send_wr: u32 = 104,
        max_recv_wr: u32 = 108,
        max_send_sge: u32 = 112,
        max_recv_sge: u32 = 116,
        max_inline_data: u32 = 120,
        pkey_index: u16 = 124,
        alt_pkey_index: u16 = 126,
        en_sqd_async_notify: u8 = 128,
        sq_draining: u8 = 129,
        max_rd_atomic: u8 = 130,
        max_dest_rd_atomic: u8 = 131,
        min_rnr_timer: u8 = 132,
        port_num: u8 = 133,
        timeout: u8 = 134,
        retry_cnt: u8 = 135,
        rnr_retry: u8 = 136,
        alt_port_num: u8 = 137,
        alt_timeout: u8 = 138,
        reserved: [u8; 5] = 139,
    }

    /// A path record with one field per item (`struct ib_user_path_rec`), as
    /// `QUERY_ROUTE` returns it. Items of two and four bytes other than
    /// `raw_traffic`, `reversible` and `mtu` are in network order.
    pub struct PathRecord: 64 {
        dgid: Gid = 0,
        sgid: Gid = 16,
        dlid_be: u16 = 32,
        slid_be: u16 = 34,
        raw_traffic: u32 = 36,
        flow_label_be: u32 = 40,
        reversible: u32 = 44,
        mtu: u32 = 48,
        pkey_be: u16 = 52,
        hop_limit: u8 = 54,
        traffic_class: u8 = 55,
        numb_path: u8 = 56,
        sl: u8 = 57,
        mtu_selector: u8 = 58,
        rate_selector: u8 = 59,
        rate: u8 = 60,
        packet_life_time_selector: u8 = 61,
        packet_life_time: u8 = 62,
        preference: u8 = 63,
    }

    /// A path record as it travels on the wire, with flags in front
    /// (`struct ibv_path_data`, `struct ib_path_rec_data`), as `QUERY` of
    /// paths returns it and the option `IB_PATH` takes it.
    pub struct PathData: 72 {
        /// `IBV_PATH_FLAG_…` bits.
        pub flags: u32 = 0,
        reserved: u32 = 4,
        service_id_be: u64 = 8,
        dgid: Gid = 16,
        sgid: Gid = 32,
        dlid_be: u16 = 48,
        slid_be: u16 = 50,
        flow_label_hop_limit_be: u32 = 52,
        traffic_class: u8 = 56,
        reversible_numb_path: u8 = 57,
        pkey_be: u16 = 58,
        qos_class_sl_be: u16 = 60,
        mtu: u8 = 62,
        rate: u8 = 63,
        packet_life_time: u8 = 64,
        preference: u8 = 65,
        reserved2: [u8; 6] = 66,
    }
}

impl Reply for QpAttr {}

impl AhAttr {
    /// The attributes as libibverbs knows them.
    pub fn to_verbs(&self) -> ibv_ah_attr {
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: self.dgid },
                flow_label: self.flow_label,
                sgid_index: self.sgid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
            },
            dlid: self.dlid,
            sl: self.sl,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.is_global,
            port_num: self.port_num,
        }
    }
}

impl QpAttr {
    /// Writes the attributes to `attr` and returns which of them the kernel
    /// has set (`IBV_QP_…` bits). `qp_state` and `rate_limit` of `attr` stay as
    /// they are; all other members are overwritten, set by the kernel or not.
    pub fn apply_to(&self, attr: &mut ibv_qp_attr) -> u32 {
        *attr = ibv_qp_attr {
            qp_state: attr.qp_state,
            cur_qp_state: self.cur_qp_state,
            path_mtu: self.path_mtu,
            path_mig_state: self.path_mig_state,
            qkey: self.qkey,
            rq_psn: self.rq_psn,
            sq_psn: self.sq_psn,
            dest_qp_num: self.dest_qp_num,
            qp_access_flags: self.qp_access_flags,
            cap: ibv_qp_cap {
                max_send_wr: self.max_send_wr,
                max_recv_wr: self.max_recv_wr,
                max_send_sge: self.max_send_sge,
                max_recv_sge: self.max_recv_sge,
                max_inline_data: self.max_inline_data,
            },
            ah_attr: self.ah_attr.to_verbs(),
            alt_ah_attr: self.alt_ah_attr.to_verbs(),
            pkey_index: self.pkey_index,
            alt_pkey_index: self.alt_pkey_index,
            en_sqd_async_notify: self.en_sqd_async_notify,
            sq_draining: self.sq_draining,
            max_rd_atomic: self.max_rd_atomic,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            port_num: self.port_num,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            alt_port_num: self.alt_port_num,
            alt_timeout: self.alt_timeout,
            rate_limit: attr.rate_limit,
        };
        self.qp_attr_mask
    }
}

impl PathRecord {
    /// Local GID.
    pub fn sgid(&self) -> Gid {
        self.sgid
    }

    /// Remote GID.
    pub fn dgid(&self) -> Gid {
        self.dgid
    }

    /// Partition key in network order.
    pub fn pkey(&self) -> u16 {
        self.pkey_be
    }

    /// The record as libibverbs knows it.
    pub fn to_verbs(&self) -> ibv_sa_path_rec {
        ibv_sa_path_rec {
            dgid: ibv_gid { raw: self.dgid },
            sgid: ibv_gid { raw: self.sgid },
            dlid: self.dlid_be,
            slid: self.slid_be,
            raw_traffic: self.raw_traffic as i32,
            flow_label: self.flow_label_be,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            reversible: self.reversible as i32,
            numb_path: self.numb_path,
            pkey: self.pkey_be,
            sl: self.sl,
            mtu_selector: self.mtu_selector,
            // An `enum ibv_mtu`, which fits; the rest of the field is zero.
            mtu: self.mtu as u8,
            rate_selector: self.rate_selector,
            rate: self.rate,
            packet_life_time_selector: self.packet_life_time_selector,
            packet_life_time: self.packet_life_time,
            preference: self.preference,
        }
    }

    /// The record as [`PathData::to_verbs`] gives it, for a path on Ethernet:
    /// there the kernel tells the same in both forms, but for the fields that
    /// the conversion of the other form sets itself.
    pub fn to_verbs_ethernet(&self) -> ibv_sa_path_rec {
        ibv_sa_path_rec {
            numb_path: ONE_PATH,
            mtu_selector: EXACTLY,
            rate_selector: EXACTLY,
            packet_life_time_selector: EXACTLY,
            preference: COMPLETE_PATH,
            ..self.to_verbs()
        }
    }
}

/// "Exactly this value": selector of MTU, rate and life time.
const EXACTLY: u8 = 2;
/// Number of paths that a record describes.
const ONE_PATH: u8 = 1;
/// Flags of the records that the kernel reports: a primary path in both
/// directions, also for management.
const COMPLETE_PATH: u8 = 0x2B;

impl PathData {
    /// Local GID.
    pub fn sgid(&self) -> Gid {
        self.sgid
    }

    /// Remote GID.
    pub fn dgid(&self) -> Gid {
        self.dgid
    }

    /// The record as libibverbs knows it. Every value is exact (selector 2),
    /// one path is meant, and the flags take the place of the preference.
    pub fn to_verbs(&self) -> ibv_sa_path_rec {
        // Selector above, value in the low five bits.
        let value = |selected: u8| selected & 0x1F;
        let flow_and_hops = u32::from_be(self.flow_label_hop_limit_be);
        ibv_sa_path_rec {
            dgid: ibv_gid { raw: self.dgid },
            sgid: ibv_gid { raw: self.sgid },
            dlid: self.dlid_be,
            slid: self.slid_be,
            raw_traffic: 0,
            flow_label: (flow_and_hops >> 8).to_be(),
            hop_limit: flow_and_hops as u8,
            traffic_class: self.traffic_class,
            reversible: i32::from(self.reversible_numb_path >> 7),
            numb_path: ONE_PATH,
            pkey: self.pkey_be,
            sl: (u16::from_be(self.qos_class_sl_be) & 0xF) as u8,
            mtu_selector: EXACTLY,
            mtu: value(self.mtu),
            rate_selector: EXACTLY,
            rate: value(self.rate),
            packet_life_time_selector: EXACTLY,
            packet_life_time: value(self.packet_life_time),
            preference: self.flags as u8,
        }
    }
}

#[cfg(test)]
mod tests;
