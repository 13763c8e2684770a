//! An SRP target in user space: the channels over which a SCSI initiator such
//! as Linux's `ib_srp` reaches disks, on top of the RDMA connection manager.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`executor`] | the border to whoever executes SCSI commands |
//! | [`memory`] | memory for the data of commands |
//! | [`server`] | how a target serves |
//! | [`wire`] | SRP's information units as bytes |
//!
//! What a SCSI command means is not known here.

pub mod executor;
pub mod memory;
pub mod server;
pub mod wire;
