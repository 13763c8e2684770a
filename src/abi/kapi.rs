//! Types of `<rdma/rdma_cm_kapi.h>`.

use std::ffi::c_char;

/// `service_id` of the service is set.
pub const RDMA_IB_SERVICE_ID: u32 = 1;
/// `service_name` of the service is set.
pub const RDMA_IB_SERVICE_NAME: u32 = 2;
/// Room for the name of a service with its end, in bytes.
pub const RDMA_IB_SERVICE_NAME_SIZE: usize = 64;

/// An InfiniBand service to look up, laid out like the kernel's structure for
/// the same purpose.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_ib_service {
    /// Identifier of the service, in host order.
    pub service_id: u64,
    /// Name of the service, ending with NUL.
    pub service_name: [c_char; RDMA_IB_SERVICE_NAME_SIZE],
    /// `RDMA_IB_SERVICE_ID` or `RDMA_IB_SERVICE_NAME`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}
