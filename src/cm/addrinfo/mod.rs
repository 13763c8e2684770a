//! Address information: names and services to the addresses, and where the
//! network needs it the routes, that RDMA communication takes.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | `hints` | what the caller wants, checked, and how libc is asked for it |
//! | `names` | libc's answer, turned into entries |
//! | `infiniband` | entries with InfiniBand addresses |
//! | `service` | looking up InfiniBand services in all networks |
//! | `entry` | one result, and the C lists in which results travel |
//! | [`resolve`] | resolution without blocking, bound to an identifier |
//! | `failure` | why a lookup failed: an `EAI_…` code or an errno |
//!
//! Talking to the ibacm daemon is [`super::acm`]'s business.

pub(super) mod entry;
mod failure;
mod hints;
mod infiniband;
mod names;
mod resolve;
mod service;

use std::ffi::CStr;
use std::fmt;

pub use entry::List;
pub use failure::LookupError;
pub use hints::Hints;
pub use resolve::{Resolution, Service, forget, resolve, resolve_service, resolved, take_result};

use entry::Entry;

use crate::error::Error;

use super::{acm, library};

/// Resolves `node` and `service`, or what the hints hold, to a list of
/// addresses in the order of libc's `getaddrinfo(3)`. See
/// `rdma_getaddrinfo(3)`.
///
/// Blocks for name resolution, and up to about two seconds for ibacm where an
/// InfiniBand port and the daemon exist.
///
/// # Errors
/// The resolver's code if the name cannot be resolved. `EINVAL` if nothing is
/// given, or a lookup of services lacks the service; `EOPNOTSUPP` if one comes
/// with a node or asks for names as well; `ENOENT` if no network knows the
/// service; `ENODEV` without an RDMA device; `ENOMEM`.
pub fn lookup(
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<&Hints>,
) -> Result<List, LookupError> {
    log::debug!("looks up node {}, service {}", Text(node), Text(service));
    if hints.is_some_and(Hints::wants_service) {
        return service::lookup(node, service, hints);
    }
    let entries = addresses(node, service, hints)?;
    // After the names, so that a wrong name is not reported as a missing
    // device.
    library::ensure_ready()?;
    let entries = with_routes(entries, hints);
    Ok(List::build(&entries)?)
}

/// A name that a program gave or not, in a log line.
struct Text<'a>(Option<&'a CStr>);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => f.write_str(&text.to_string_lossy()),
            None => f.write_str("none"),
        }
    }
}

/// The entries without routes.
fn addresses(
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<&Hints>,
) -> Result<Vec<Entry>, LookupError> {
    let mut entries = match (node, service, hints) {
        (None, None, None) => return Err(Error::invalid("look up nothing").into()),
        (None, None, Some(hints)) => vec![hints.to_entry()],
        _ => names::lookup(node, service, hints)?,
    };
    if let Some(src) = hints.and_then(|hints| hints.src) {
        for entry in &mut entries {
            entry.src.get_or_insert(src);
        }
    }
    Ok(entries)
}

/// Asks ibacm for the route to the first destination. The others, to which a
/// program turns only if that one fails, have theirs resolved when used.
fn with_routes(mut entries: Vec<Entry>, hints: Option<&Hints>) -> Vec<Entry> {
    let Some(first) = entries.first_mut().filter(|entry| !entry.is_passive()) else {
        return entries;
    };
    let Some(answer) = acm::lookup(first.src.as_ref(), first.dst.as_ref(), hints) else {
        return entries;
    };
    if first.src.is_none() {
        first.src = answer.src;
    }
    first.paths = answer.paths;
    if let Some(entry) = infiniband::entry(first) {
        entries.insert(0, entry);
    }
    entries
}
