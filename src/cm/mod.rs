//! The connection manager: identifiers, their events and the steps that lead
//! from an address to a connection.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`library`] | finding the kernel's device, once, when first needed |
//! | [`device`] | the RDMA devices and what is shared by all who use one |
//! | [`channel`] | event channels |
//! | [`id`] | identifiers: creation, destruction, migration, public members |
//! | [`registry`] | which identifiers, events and memberships are alive |
//! | [`accounting`] | how many events of an identifier came and were acknowledged |
//! | [`numbers`] | whose the kernel's numbers are |
//! | [`address`] | binding, listening, resolving addresses and routes |
//! | [`query`] | what the kernel knows of an identifier's addresses |
//! | [`connect`] | connect, accept, reject, establish, disconnect, notify |
//! | [`event`] | getting and acknowledging events |
//! | [`dispatch`] | what the library does when the kernel reports an event |
//! | [`post`], [`messenger`] | events of our own in a channel |
//! | [`sync`] | synchronous mode: waiting on a private channel |
//! | [`qp`], [`transition`], [`cq`], [`srq`] | queue pairs and what they need |
//! | [`endpoint`] | identifier and queue pair made in one call |
//! | [`multicast`] | group membership |
//! | [`option`] | options of an identifier |
//! | [`owned`] | channels, identifiers and events for Rust programs |
//! | [`defaults`] | options that the environment gives to every identifier |
//! | [`handler`] | keeping an identifier's events from being handled |
//! | [`waiters`] | threads that wait in synchronous mode |
//! | [`ece`] | enhanced connection establishment |
//! | [`addrinfo`], [`acm`] | names to addresses, and the ibacm daemon |
//!
//! Functions here return [`crate::Result`]; none touches `errno`.

pub mod accounting;
pub mod acm;
pub mod address;
pub mod addrinfo;
pub mod channel;
pub mod connect;
pub mod cq;
pub mod defaults;
pub mod device;
pub mod dispatch;
pub mod ece;
pub mod endpoint;
pub mod event;
pub mod handler;
pub mod id;
pub mod library;
pub mod messenger;
#[cfg(all(test, feature = "model"))]
mod model;
pub mod multicast;
pub mod numbers;
pub mod option;
pub mod owned;
pub mod post;
pub mod qp;
pub mod query;
pub mod registry;
pub mod srq;
pub mod sync;
pub mod transition;
pub mod waiters;

use crate::fork::AcrossFork;

/// The locks of what all identifiers share, in the order in which a thread may
/// take several.
pub(crate) static LOCKS: [&dyn AcrossFork; 10] = [
    &device::RESYNC,
    &device::HANDED_OUT,
    &addrinfo::entry::HANDED_OUT,
    &acm::daemon::DAEMON,
    &channel::OPEN,
    &messenger::OWNERS,
    &multicast::BY_UID,
    &event::LIVE,
    &id::table::BY_ADDRESS,
    &id::table::BY_HANDLE,
];
