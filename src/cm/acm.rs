//! The client of the ibacm daemon, which knows routes in InfiniBand networks.
//!
//! The daemon is optional and everything it says is checked: any trouble with
//! it means that there is no answer, and the kernel is asked instead. Ports
//! that are not InfiniBand have no use for it and it is not asked.
//!
//! Requests and replies are made and read in `message`; `daemon` carries
//! them.

pub(super) mod daemon;
mod message;

use crate::error::Error;
use crate::kernel::addr::SockAddr;
use crate::kernel::uverbs::PathData;

use super::addrinfo::Hints;
use super::device::{self, LinkLayer};
use super::id::Id;

use daemon::DAEMON;
pub use message::{Answer, decode};
use message::{Question, encode};

/// The route between the identifier's addresses, if it is bound to an
/// InfiniBand port and the daemon knows one. Blocks for at most about two
/// seconds.
pub fn route(id: &Id) -> Option<Vec<PathData>> {
    let device = id.device()?;
    if device.link_layer(id.port_num()) != LinkLayer::InfiniBand {
        return None;
    }
    let request = encode(&Question {
        src: id.src_addr().as_ref(),
        dst: id.dst_addr().as_ref(),
        ..Question::default()
    })?;
    let answer = DAEMON.ask(&request).inspect_err(explain).ok()?;
    (!answer.paths.is_empty()).then_some(answer.paths)
}

/// What the daemon knows of reaching `dst`, if the machine has an InfiniBand
/// port. Blocks for at most about two seconds.
pub fn lookup(
    src: Option<&SockAddr>,
    dst: Option<&SockAddr>,
    hints: Option<&Hints>,
) -> Option<Answer> {
    // Cheap before dear: looking at link layers opens the devices.
    if !DAEMON.is_installed() || !device::any_infiniband_port() {
        return None;
    }
    let request = encode(&Question {
        src,
        dst,
        no_delay: hints.is_some_and(Hints::wants_no_delay),
        path: hints.and_then(|hints| hints.path),
    })?;
    DAEMON.ask(&request).inspect_err(explain).ok()
}

fn explain(error: &Error) {
    log::info!("no answer from ibacm: {error}");
}
