//! An SRP target in user space: the channels over which a SCSI initiator such
//! as Linux's `ib_srp` reaches disks, on top of the RDMA connection manager.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`server`] | a target that listens and serves: the way in |
//! | [`executor`] | the border to whoever executes SCSI commands |
//! | [`scsi`] | what a SCSI command to a disk means |
//! | [`backing`] | files and block devices that keep the data of disks |
//! | [`login`] | judging logins |
//! | [`session`] | which channels belong together |
//! | [`driver`] | a channel's thread, and what it waits for |
//! | [`pump`] | keeping a channel going |
//! | [`processors`] | where a channel's thread runs |
//! | [`channel`] | commands, data and responses of a channel |
//! | [`endpoint`] | a channel's queue pair |
//! | [`queue_pair`] | the states of queue pairs |
//! | [`cm_event`] | what connection events mean for a channel |
//! | [`connection`] | what is needed of the connection manager |
//! | [`memory`] | memory for the data of commands |
//! | [`capi`] | the C interface |
//! | [`wire`] | SRP's information units as bytes |
//!
//! The channel's side knows nothing of [`scsi`] and [`backing`], and they nothing
//! of channels; a program joins them by an [`executor::Executor`].

pub mod backing;
pub mod capi;
pub mod channel;
pub mod cm_event;
pub mod connection;
pub mod driver;
pub mod endpoint;
pub mod executor;
pub mod login;
pub mod memory;
pub mod processors;
pub mod pump;
pub mod queue_pair;
pub mod scsi;
pub mod server;
pub mod session;
pub mod wire;
