//! An SRP target in user space: the channels over which a SCSI initiator such
//! as Linux's `ib_srp` reaches disks, on top of the RDMA connection manager.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`backing`] | files and block devices that keep the data of disks |
//! | [`executor`] | the border to whoever executes SCSI commands |
//! | [`memory`] | memory for the data of commands |
//! | [`scsi`] | what a SCSI command to a disk means |
//! | [`server`] | how a target serves |
//! | [`wire`] | SRP's information units as bytes |
//!
//! The channel's side knows nothing of [`scsi`] and [`backing`], and they nothing
//! of channels; a program joins them by an [`executor::Executor`].

pub mod backing;
pub mod executor;
pub mod memory;
pub mod scsi;
pub mod server;
pub mod wire;
