//! Flow control of a stream connection: what may be sent, what was received,
//! and what is to be granted to the peer.
//!
//! Pure bookkeeping: nothing here touches memory or a queue pair, so that all
//! that a peer can say is checked in one place, and tested without a device.

mod inbox;
mod outbox;
#[cfg(test)]
mod tests;

pub use inbox::{Grant, Half, Inbox, Violation};
pub use outbox::{CONTROL_SLOTS, Cost, Outbox, Segment};
