//! `bind`, `listen` and `connect`, and what happens when RDMA cannot serve:
//! the program goes on with the kernel's socket.

use std::collections::BTreeMap;
use std::ffi::c_int;

use libc::{sockaddr, socklen_t};

use crate::fork::{self, State};
use crate::lock::{Mutex, MutexGuard, locked};
use crate::next::fail;
use crate::{memory, next, number, rdmacm, sets, table};

/// An address as the program gave it.
type Address = Vec<u8>;

/// What has to be known of a socket over RDMA that is not connected.
#[derive(Default)]
pub struct Pending {
    bound: Option<Address>,
    destination: Option<Address>,
    /// An error that the program has not been told.
    error: c_int,
}

/// By socket.
pub static PENDING: Mutex<BTreeMap<c_int, Pending>> = Mutex::new(BTreeMap::new());

fn pending() -> MutexGuard<'static, BTreeMap<c_int, Pending>> {
    locked(&PENDING)
}

/// The longest address.
const LONGEST: usize = size_of::<libc::sockaddr_storage>();

/// A copy of an address.
///
/// # Errors
/// As the kernel's: `EINVAL` if it is too long, `EFAULT` if it is no memory.
///
/// # Safety
/// `addr` is null, an address of `len` bytes, or no memory.
unsafe fn copy(addr: *const sockaddr, len: socklen_t) -> Result<Address, c_int> {
    let len = len as usize;
    if len > LONGEST {
        return Err(libc::EINVAL);
    }
    let mut copy = vec![0; len];
    // SAFETY: the caller vouches for it.
    unsafe { memory::read(addr.cast::<u8>(), &mut copy) }?;
    Ok(copy)
}

/// Forgets a socket that is closed.
pub fn forget(socket: c_int) {
    pending().remove(&socket);
}

/// Takes the error that a socket is still to report, 0 if there is none.
pub fn take_error(socket: c_int) -> c_int {
    match pending().get_mut(&socket) {
        Some(pending) => std::mem::take(&mut pending.error),
        None => 0,
    }
}

/// Whether an error says that RDMA cannot serve here, while the kernel might:
/// no device has the address, or its nodes are missing or not permitted.
pub fn is_refusal(errno: c_int) -> bool {
    matches!(
        errno,
        libc::ENODEV | libc::ENXIO | libc::ENOENT | libc::EACCES | libc::EADDRNOTAVAIL
    )
}

/// `bind(2)`: an address without an RDMA device is the kernel's.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    if let Some(socket) = table::find(fd) {
        // SAFETY: the caller's address.
        let address = match unsafe { copy(addr, len) } {
            Ok(address) => address,
            Err(errno) => return fail(errno),
        };
        // SAFETY: an address of that length.
        let status = unsafe { rdmacm::rbind(socket, address.as_ptr().cast(), len) };
        if status == 0 {
            pending().entry(socket).or_default().bound = Some(address);
            return 0;
        }
        if !is_refusal(next::errno()) {
            return status;
        }
        fall_back(socket);
    }
    // SAFETY: as above.
    unsafe { next::bind(fd, addr, len) }
}

/// Connections that wait to be accepted, as the kernel allows for RDMA. A client
/// of TCP for which there is no room tries again, one of RDMA is refused; so there
/// is always as much room as there can be.
const BACKLOG: c_int = 1024;

/// `listen(2)`.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match table::find(fd) {
        // SAFETY: no pointers.
        Some(socket) => unsafe { rdmacm::rlisten(socket, backlog.max(BACKLOG)) },
        None => {
            // SAFETY: as above.
            let status = unsafe { next::listen(fd, backlog) };
            if status == 0 && fork::state(fd) == Some(State::New) {
                fork::note(fd, State::Listening);
            }
            status
        }
    }
}

/// `connect(2)`: by RDMA, else by the kernel.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    if let Some(socket) = table::find(fd) {
        // SAFETY: the caller's address.
        let address = match unsafe { copy(addr, len) } {
            Ok(address) => address,
            Err(errno) => return fail(errno),
        };
        // SAFETY: an address of that length.
        let status = unsafe { rdmacm::rconnect(socket, address.as_ptr().cast(), len) };
        if status == 0 {
            table::set_connecting(socket, false);
            return 0;
        }
        match next::errno() {
            libc::EINPROGRESS => {
                pending().entry(socket).or_default().destination = Some(address);
                table::set_connecting(socket, true);
                return status;
            }
            // The last says that the program has shut the socket down meanwhile.
            libc::EALREADY
            | libc::EISCONN
            | libc::EINTR
            | libc::EFAULT
            | libc::EINVAL
            | libc::ECONNRESET => return status,
            _ => fall_back(socket),
        }
    }
    if fork::state(fd) == Some(State::New) {
        fork::note(fd, State::Active);
    }
    // SAFETY: as above.
    unsafe { next::connect(fd, addr, len) }
}

/// Leaves the descriptors of a socket to the kernel's, which is bound as it
/// was.
pub fn fall_back(socket: c_int) {
    let bound = pending().remove(&socket).and_then(|pending| pending.bound);
    let fds: Vec<_> = table::range(0, u32::MAX)
        .filter(|fd| table::find(*fd) == Some(socket))
        .collect();
    sets::fall_back(socket);
    for fd in &fds {
        table::remove(*fd);
    }
    // SAFETY: no pointers.
    unsafe { rdmacm::rclose(socket) };
    if let (Some(bound), Some(fd)) = (bound, fds.first()) {
        // If the address is taken, the kernel chooses one.
        // SAFETY: an address of that length.
        unsafe { next::bind(*fd, bound.as_ptr().cast(), bound.len() as socklen_t) };
    }
}

/// How an attempt to connect that a wait was for has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is for the program to see.
    Told,
    /// The kernel's socket connects now.
    FellBack,
}

/// Whether there is something to report of a socket that connects.
fn has_ended(socket: c_int) -> bool {
    let mut entry = libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { rdmacm::rpoll(&mut entry, 1, 0) > 0 }
}

/// If the attempt of the socket behind `fd` to connect has ended, looks how;
/// the kernel tries where RDMA failed.
pub fn settle(fd: c_int, socket: c_int) -> Outcome {
    if !table::is_connecting(socket) || !has_ended(socket) {
        return Outcome::Told;
    }
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ERROR);
    let error = number::get(rdmacm::rgetsockopt, socket, level, name, 0);
    table::set_connecting(socket, false);
    if error == 0 {
        return Outcome::Told;
    }
    let destination = pending()
        .get_mut(&socket)
        .and_then(|pending| pending.destination.take());
    // If it was reset, the program has shut it down meanwhile.
    if error != libc::ECONNRESET
        && let Some(destination) = destination
        && begin_by_kernel(fd, &destination)
    {
        fall_back(socket);
        return Outcome::FellBack;
    }
    // The socket over RDMA goes on to report that.
    pending().entry(socket).or_default().error = error;
    Outcome::Told
}

/// Whether the kernel's socket connects now, or is connected.
fn begin_by_kernel(fd: c_int, destination: &Address) -> bool {
    let len = destination.len() as socklen_t;
    // SAFETY: an address of that length.
    let status = unsafe { next::connect(fd, destination.as_ptr().cast(), len) };
    status == 0 || next::errno() == libc::EINPROGRESS
}
