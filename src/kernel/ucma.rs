//! The commands of the connection manager's character device and their
//! replies (`<rdma/rdma_user_cm.h>`), for [`super::submit`].
//!
//! One type per command, with a constructor that takes the command's
//! arguments, and one per reply, whose accessors hand out only bounded and
//! checked data. Which command is right in which state, and what its errno
//! means to a program, is not known here. This file numbers the commands; the
//! modules below define them.
//!
//! Identifiers are the kernel's numbers; `uid` is the number that the kernel
//! gives back in events. Commands with two forms come as *legacy* (28-byte
//! addresses: [`BindIp`], [`ResolveIp`], [`QueryRoute`], [`JoinIpMulticast`])
//! and *extended* ([`Bind`], [`ResolveAddr`], [`QueryAddr`], [`QueryGid`],
//! [`QueryPath`], [`JoinMulticast`]). Command 13, `GET_OPTION`, was never
//! implemented by any kernel and is left out.

mod address;
mod connection;
mod event;
mod identifier;
mod multicast;
mod option;
mod query;

pub use address::*;
pub use connection::*;
pub use event::*;
pub use identifier::*;
pub use multicast::*;
pub use option::*;
pub use query::*;

use super::command::Command;
use super::uverbs::QpAttr;

/// Implements [`Command`] for commands, with or without a reply.
macro_rules! commands {
    ($($number:literal $name:ident $(-> $reply:ty)?, $step:literal;)*) => {$(
        // SAFETY: `<rdma/rdma_user_cm.h>`: the reply goes to `response`, which
        // `set_response` sets; commands without a reply have no such address
        // (`BIND_IP` leaves it alone).
        unsafe impl Command for $name {
            const NUMBER: u32 = $number;
            const STEP: &'static str = $step;
            commands!(@reply $($reply)?);
        }
    )*};
    (@reply) => {
        type Reply = ();
    };
    (@reply $reply:ty) => {
        type Reply = $reply;
        fn set_response(&mut self, address: u64) {
            self.response = address;
        }
    };
}

commands! {
    0 CreateId -> IdReply, "create an identifier (CREATE_ID)";
    1 DestroyId -> EventsReported, "destroy an identifier (DESTROY_ID)";
    2 BindIp, "bind to an address (BIND_IP)";
    3 ResolveIp, "resolve an address (RESOLVE_IP)";
    4 ResolveRoute, "resolve a route (RESOLVE_ROUTE)";
    5 QueryRoute -> RouteReply, "query the route (QUERY_ROUTE)";
    6 Connect, "connect (CONNECT)";
    7 Listen, "listen (LISTEN)";
    8 Accept, "accept (ACCEPT)";
    9 Reject, "reject (REJECT)";
    10 Disconnect, "disconnect (DISCONNECT)";
    11 InitQpAttr -> QpAttr, "fetch queue pair attributes (INIT_QP_ATTR)";
    14 SetOption, "set an option (SET_OPTION)";
    15 Notify, "notify of an event (NOTIFY)";
    16 JoinIpMulticast -> IdReply, "join a multicast group (JOIN_IP_MCAST)";
    17 LeaveMulticast -> EventsReported, "leave a multicast group (LEAVE_MCAST)";
    18 MigrateId -> EventsReported, "migrate an identifier (MIGRATE_ID)";
    19 QueryAddr -> AddrReply, "query the addresses (QUERY)";
    19 QueryPath -> PathReply, "query the path records (QUERY)";
    19 QueryGid -> GidReply, "query the GIDs (QUERY)";
    19 QueryIbService -> IbServiceHead, "query the service records (QUERY)";
    20 Bind, "bind to an address (BIND)";
    21 ResolveAddr, "resolve an address (RESOLVE_ADDR)";
    22 JoinMulticast -> IdReply, "join a multicast group (JOIN_MCAST)";
    23 ResolveIbService, "resolve a service (RESOLVE_IB_SERVICE)";
    24 WriteCmEvent, "write an event (WRITE_CM_EVENT)";
}

/// The first `count` items, or all if there are fewer: counts and sizes come
/// from the kernel and may be larger than what fits a reply.
fn bounded<T>(items: &[T], count: u32) -> &[T] {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    items.get(..count).unwrap_or(items)
}

#[cfg(test)]
mod tests;
