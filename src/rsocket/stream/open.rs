//! Connecting: address, route and request, step by step as the connection
//! manager reports, in the thread that waits for it or in the service thread.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use crate::abi::*;
use crate::cancel::{at_end, holding};
use crate::cm::address;
use crate::cm::connect::{self, Param};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::lock::locked;

use super::{Phase, RETRIES, Stream, unmapped};
use crate::rsocket::endpoint::Endpoint;
use crate::rsocket::events::Report;
use crate::rsocket::pauses::SHORTEST;
use crate::rsocket::route;
use crate::rsocket::service::{self, Next};
use crate::rsocket::spare;
use crate::rsocket::wait::{readable, sleep_on};
use crate::rsocket::wake::Wake;
use crate::rsocket::wire::ConnData;

/// Attempts of each step of address resolution; the first takes a second,
/// each further one twice as long.
const ATTEMPTS: u32 = 7;
const FIRST_TIMEOUT_MS: i32 = 1000;

#[derive(Debug)]
pub(super) struct Opening {
    destination: SockAddr,
    step: Step,
    attempt: u32,
}

#[derive(Debug)]
enum Step {
    Address,
    Route(Box<Endpoint>),
    Connect(Box<Endpoint>),
}

/// What a step of connecting leads to.
enum Opened {
    /// To another one.
    Further(Opening),
    /// To a connection.
    Connected(Box<Endpoint>, ConnData),
}

impl Stream {
    /// Connects to `destination`; waits unless non-blocking, for as long as sends
    /// do. An attempt whose wait a signal or that limit ended goes on in the
    /// background, and can be waited for again.
    ///
    /// # Errors
    /// `EINPROGRESS` if non-blocking or at the limit, `EALREADY` if that was so
    /// before, `EISCONN`; what became of the attempt: `ECONNREFUSED`, `ETIMEDOUT`,
    /// `EHOSTUNREACH`, …
    pub fn connect(self: &Arc<Self>, destination: &SockAddr) -> Result<()> {
        let nonblocking = self.common.is_nonblocking();
        let mut unfinished = Error::new(libc::EALREADY, "connect twice");
        {
            let destination = &unmapped(destination);
            let mut phase = locked(&self.phase);
            match &*phase {
                Phase::Init | Phase::Bound => {
                    unfinished = Error::new(libc::EINPROGRESS, "connect");
                    // What it takes to go on with an attempt comes before it, so that
                    // a program that is out of descriptors may try again.
                    if nonblocking {
                        service::watch(self.descriptor(), self)?;
                    } else {
                        service::start()?;
                    }
                    address::resolve_addr(&self.id, None, destination, FIRST_TIMEOUT_MS)
                        .inspect_err(|error| self.common.set_error(error.errno()))?;
                    // What an earlier attempt has left says nothing of this one.
                    self.common.take_error();
                    *phase = Phase::Opening(Some(Opening {
                        destination: *destination,
                        step: Step::Address,
                        attempt: 0,
                    }));
                }
                Phase::Opening(_) => {}
                Phase::Connected | Phase::Accepting(_) => {
                    return Err(Error::new(libc::EISCONN, "connect a connected socket"));
                }
                Phase::Failed => {
                    return Err(Error::new(libc::ENOTCONN, "connect after a failure"));
                }
                Phase::Listening(_) => {
                    return Err(Error::invalid("connect a listening socket"));
                }
            }
        }
        if nonblocking {
            return Err(unfinished);
        }
        let result = match self.wait_until_connected() {
            Ok(true) => Ok(()),
            Ok(false) => Err(unfinished),
            Err(error) if error.errno() == libc::EINTR => Err(error),
            Err(error) => return Err(error),
        };
        // From now on the service thread notices when the peer goes.
        self.leave_to_service();
        result
    }

    /// What the caller has begun or has connected is the service thread's from now on.
    fn leave_to_service(self: &Arc<Self>) {
        if let Err(error) = service::watch(self.descriptor(), self) {
            log::warn!("{}: is not looked after: {error}", self.id);
        }
    }

    /// Returns `false` if it takes longer than sends may.
    fn wait_until_connected(self: &Arc<Self>) -> Result<bool> {
        let stream = Arc::as_ptr(self);
        let go_on = move || {
            // SAFETY: the thread has ended in its wait, and the reference that it had
            // to the socket has no other owner.
            let stream = unsafe { Arc::from_raw(stream) };
            stream.leave_to_service();
        };
        let registered = self.common.waiters().register(&Wake::of_thread());
        at_end(go_on, || {
            holding(registered, |registered| {
                self.handle_until_connected(registered.wake())
            })
        })
    }

    fn handle_until_connected(self: &Arc<Self>, wake: &Wake) -> Result<bool> {
        let deadline = self.common.send_timeout().deadline();
        let mut pause = None;
        loop {
            self.common.check_open()?;
            match &*locked(&self.phase) {
                Phase::Connected => return Ok(true),
                Phase::Opening(_) => {}
                _ => {
                    // Another thread may have taken the reason (SO_ERROR).
                    let errno = match self.common.error() {
                        0 => libc::ENOTCONN,
                        errno => errno,
                    };
                    return Err(Error::new(errno, "connect"));
                }
            }
            let channel = pause.map_or(self.descriptor(), |_| -1);
            let mut entries = [readable(channel), readable(wake.as_raw_fd())];
            let end = pause.take().into_iter().chain(deadline).min();
            let over = |deadline: Instant| deadline <= Instant::now();
            if !sleep_on(wake, &mut entries, end)? && deadline.is_some_and(over) {
                return Ok(false);
            }
            let [happened, woken] = entries;
            if woken.revents != 0 {
                wake.clear();
            }
            if happened.revents != 0 && self.handle_next() == Next::Pause {
                pause = Instant::now().checked_add(SHORTEST);
            }
        }
    }

    /// Takes the next step of connecting, without the lock of the phase: it makes a
    /// queue pair and registers memory. A shutdown may give the attempt up meanwhile.
    pub(super) fn open(self: &Arc<Self>, opening: Opening, report: &Report) {
        let opened = self.open_further(opening, report);
        let mut phase = locked(&self.phase);
        let Phase::Opening(opening) = &mut *phase else {
            drop(phase);
            // After the lock.
            drop(opened);
            return;
        };
        match opened {
            Ok(Opened::Further(next)) => *opening = Some(next),
            Ok(Opened::Connected(endpoint, peer)) => {
                self.connected(self.connection_of(*endpoint, peer));
                *phase = Phase::Connected;
            }
            Err(error) => {
                log::info!("{}: cannot connect: {error}", self.id);
                self.fail(phase, error.errno());
            }
        }
    }

    fn open_further(&self, opening: Opening, report: &Report) -> Result<Opened> {
        let Opening {
            destination,
            step,
            mut attempt,
        } = opening;
        let timed_out = report.status == -libc::ETIMEDOUT && attempt + 1 < ATTEMPTS;
        let step = match (step, report.kind) {
            (Step::Address, RDMA_CM_EVENT_ADDR_RESOLVED) => {
                attempt = 0;
                self.resolve_route(attempt)?;
                // Meanwhile the kernel resolves it.
                let settings = self.options().settings.clone();
                Step::Route(Box::new(Endpoint::new(&self.id, &settings)?))
            }
            (Step::Address, RDMA_CM_EVENT_ADDR_ERROR) if timed_out => {
                attempt += 1;
                let timeout = FIRST_TIMEOUT_MS << attempt;
                address::resolve_addr(&self.id, None, &destination, timeout)?;
                Step::Address
            }
            (Step::Route(endpoint), RDMA_CM_EVENT_ROUTE_RESOLVED) => {
                self.request(&endpoint)?;
                self.prepare(&endpoint);
                Step::Connect(endpoint)
            }
            (step @ Step::Route(_), RDMA_CM_EVENT_ROUTE_ERROR) if timed_out => {
                attempt += 1;
                self.resolve_route(attempt)?;
                step
            }
            (Step::Connect(endpoint), RDMA_CM_EVENT_ESTABLISHED) => {
                let peer = ConnData::decode(&report.private_data)
                    .map_err(|_| Error::new(libc::ENOTSUP, "understand the peer"))?;
                return Ok(Opened::Connected(endpoint, peer));
            }
            (step, RDMA_CM_EVENT_ADDR_CHANGE | RDMA_CM_EVENT_TIMEWAIT_EXIT) => step,
            _ => return Err(Error::new(report.errno(), "connect")),
        };
        Ok(Opened::Further(Opening {
            destination,
            step,
            attempt,
        }))
    }

    /// The peer and the network take their time with the request: enough to prepare
    /// another connection, or all of the first one, which may be the only one.
    fn prepare(&self, endpoint: &Endpoint) {
        if let Some(device) = self.id.device() {
            let settings = self.options().settings.clone();
            if !spare::prepare_connection(&device, &settings) {
                endpoint.prepare_ahead();
            }
        }
    }

    fn resolve_route(&self, attempt: u32) -> Result<()> {
        let route = std::mem::take(&mut self.options().route);
        if route.is_empty() {
            return address::resolve_route(&self.id, FIRST_TIMEOUT_MS << attempt);
        }
        route::set(&self.id, &route)
    }

    fn request(&self, endpoint: &Endpoint) -> Result<()> {
        let data = endpoint.conn_data().encode();
        let mut private_data = vec![0; self.header_len()];
        private_data.extend_from_slice(&data);
        connect::connect(
            &self.id,
            Some(&Param {
                private_data: &private_data,
                responder_resources: 0,
                initiator_depth: endpoint.carrier().initiator_depth(),
                flow_control: 1,
                retry_count: RETRIES,
                rnr_retry_count: 7,
                srq: 0,
                qp_num: 0,
            }),
        )
    }
}
