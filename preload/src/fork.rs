//! Sockets of programs that fork, with `RDMAV_FORK_SAFE` set on both sides: a
//! connection begins by TCP, which survives a fork, and goes over to RDMA at
//! its first use, in whichever process that is.
//!
//! The side that accepted then listens for RDMA at the port of the TCP
//! connection and sends four zero bytes by TCP; the side that connected takes
//! them and connects by RDMA to the address that it has for TCP. A semaphore of
//! the host lets one connection after the other do so, as they share the port.
//!
//! A side that cannot go over tells the other by a byte of urgent data, which is
//! no part of the stream, so that neither waits in vain. The original neither
//! sends nor looks for it.

use std::collections::BTreeMap;
use std::ffi::c_int;

use libc::{nfds_t, sockaddr_storage, socklen_t};
use once_cell::race::OnceBool;

use crate::lock::atomic::{AtomicUsize, Ordering};
use crate::lock::{Mutex, MutexGuard, locked};
use crate::waiting::Deadline;
use crate::{inside, next, number, rdmacm, sockets, table};

/// How far a socket has come that is to go over to RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Neither connected nor listening.
    New,
    /// Listens by TCP.
    Listening,
    /// Accepted by TCP.
    Passive,
    /// Connected by TCP, or about to be.
    Active,
}

/// What the sides say to each other by TCP.
const READY: [u8; 4] = [0; 4];
/// How long the other side may take, in milliseconds.
const PATIENCE: c_int = 10_000;
/// The semaphore's name.
const SEMAPHORE: &std::ffi::CStr = c"/rsocket_fork";

/// By descriptor.
pub static SOCKETS: Mutex<BTreeMap<c_int, State>> = Mutex::new(BTreeMap::new());

/// How many there are, so that other programs take no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether sockets are to survive forks.
pub fn is_wanted() -> bool {
    static WANTED: OnceBool = OnceBool::new();
    WANTED.get_or_init(|| {
        std::env::var("RDMAV_FORK_SAFE")
            .is_ok_and(|text| text.trim().parse::<i32>().is_ok_and(|number| number != 0))
    })
}

fn all() -> MutexGuard<'static, BTreeMap<c_int, State>> {
    locked(&SOCKETS)
}

/// The state of a descriptor, if it is to go over to RDMA.
pub fn state(fd: c_int) -> Option<State> {
    if COUNT.load(Ordering::Acquire) == 0 || inside::is_inside() {
        return None;
    }
    all().get(&fd).copied()
}

/// Notes the state of a descriptor, if it is one, and returns it.
pub fn note(fd: c_int, state: State) -> c_int {
    if fd >= 0 {
        let mut sockets = all();
        sockets.insert(fd, state);
        COUNT.store(sockets.len(), Ordering::Release);
    }
    fd
}

/// Forgets a descriptor, which is closed or has gone over.
pub fn forget(fd: c_int) {
    if state(fd).is_some() && table::is_ours() {
        let mut sockets = all();
        sockets.remove(&fd);
        COUNT.store(sockets.len(), Ordering::Release);
    }
}

/// Whether any descriptor of the program may have a socket over RDMA, now or
/// when it goes over.
pub fn may_find() -> bool {
    (table::is_used() || COUNT.load(Ordering::Acquire) > 0) && !inside::is_inside()
}

/// The socket over RDMA behind a descriptor that is about to transfer data. A
/// connection by TCP that is to go over does so now; if it cannot, it stays.
pub fn find(fd: c_int) -> Option<c_int> {
    if let Some(socket) = table::find(fd) {
        return Some(socket);
    }
    let over = match state(fd)? {
        State::Passive => accept_over_rdma(fd),
        State::Active => connect_over_rdma(fd),
        State::New | State::Listening => return None,
    };
    forget(fd);
    match over {
        Ok(socket) => go_over(fd, socket),
        Err(stays) => {
            if stays == Stays::AndTells {
                tell(fd);
            }
            None
        }
    }
}

/// Why a connection stays one by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// This side cannot go over, and the other may wait for it.
    AndTells,
    /// The other side stays.
    WithTheOther,
}

/// Tells the other side that this one stays with TCP.
fn tell(fd: c_int) {
    let flags = libc::MSG_OOB | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: one byte.
    unsafe { next::send(fd, READY.as_ptr().cast(), 1, flags) };
}

/// Takes what [`tell`] sends, if it has come.
fn is_told(fd: c_int) -> bool {
    let mut byte = 0u8;
    let place: *mut u8 = &mut byte;
    // SAFETY: room for a byte.
    unsafe { next::recv(fd, place.cast(), 1, libc::MSG_OOB | libc::MSG_DONTWAIT) == 1 }
}

/// As [`find`], for a descriptor that is to be waited for: goes over only if
/// the other side does so too.
pub fn find_to_wait(fd: c_int) -> Option<c_int> {
    if let Some(socket) = table::find(fd) {
        return Some(socket);
    }
    match state(fd)? {
        State::Passive => find(fd),
        State::Active if peek(fd, libc::MSG_DONTWAIT) == Some(READY) => find(fd),
        _ => None,
    }
}

/// Puts a socket that has connected behind the descriptor, in place of TCP.
fn go_over(fd: c_int, socket: c_int) -> Option<c_int> {
    // SAFETY: a number.
    let flags = unsafe { next::fcntl(fd, libc::F_GETFL, std::ptr::null_mut()) };
    if flags >= 0 && flags & libc::O_NONBLOCK != 0 {
        // SAFETY: as above.
        unsafe { rdmacm::rfcntl(socket, libc::F_SETFL, libc::O_NONBLOCK.into()) };
    }
    (sockets::attach(fd, socket) >= 0).then_some(socket)
}

/// An address of a descriptor by `call`, and its length.
fn name(
    fd: c_int,
    call: unsafe fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int,
) -> Option<(sockaddr_storage, socklen_t)> {
    // SAFETY: plain data.
    let mut addr: sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    let place: *mut sockaddr_storage = &mut addr;
    // SAFETY: room for any address.
    (unsafe { call(fd, place.cast(), &mut len) } == 0).then_some((addr, len))
}

fn stream(domain: c_int) -> Option<c_int> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = unsafe { rdmacm::rsocket(domain, kind, 0) };
    (socket >= 0).then_some(socket)
}

/// The side that accepted: waits for the other to connect.
fn accept_over_rdma(fd: c_int) -> Result<c_int, Stays> {
    let (mut addr, len) = name(fd, next::getsockname).ok_or(Stays::AndTells)?;
    make_wildcard(&mut addr);
    let listener = stream(addr.ss_family.into()).ok_or(Stays::AndTells)?;
    let _turn = Turn::take();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
    number::set(rdmacm::rsetsockopt, listener, level, name, 1);
    let place: *const sockaddr_storage = &addr;
    // SAFETY: an address with its length.
    let listens = unsafe {
        rdmacm::rbind(listener, place.cast(), len) == 0 && rdmacm::rlisten(listener, 1) == 0
    };
    // SAFETY: four bytes.
    let told = listens
        && unsafe { next::send(fd, READY.as_ptr().cast(), READY.len(), libc::MSG_NOSIGNAL) }
            == READY.len() as isize;
    let comes = told && is_coming(listener, fd);
    let mut socket = -1;
    // SAFETY: nobody asks for the address; a number.
    unsafe {
        if comes {
            socket = rdmacm::raccept(listener, std::ptr::null_mut(), std::ptr::null_mut());
        }
        if socket >= 0 {
            rdmacm::rfcntl(socket, libc::F_SETFD, libc::FD_CLOEXEC.into());
        }
        rdmacm::rclose(listener);
    }
    match told {
        _ if socket >= 0 => Ok(socket),
        true => Err(Stays::WithTheOther),
        false => Err(Stays::AndTells),
    }
}

/// Waits until the other side connects to the listener. `false` if it does not
/// in time, or tells that it stays with TCP. That it closes TCP tells nothing: it
/// does so as well when it has gone over.
fn is_coming(listener: c_int, fd: c_int) -> bool {
    let entry = |fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut entries = [entry(listener, libc::POLLIN), entry(fd, libc::POLLPRI)];
    let mut count = entries.len();
    let deadline = Deadline::from_millis(PATIENCE);
    loop {
        // SAFETY: no more than there are.
        let ready =
            unsafe { rdmacm::rpoll(entries.as_mut_ptr(), count as nfds_t, deadline.left()) };
        let [over, by_tcp] = entries;
        if ready < 0 && next::errno() == libc::EINTR {
            continue;
        }
        if ready <= 0 || over.revents != 0 {
            return ready > 0;
        }
        if by_tcp.revents & libc::POLLPRI != 0 && is_told(fd) {
            return false;
        }
        count = 1;
    }
}

/// The same port of any address.
fn make_wildcard(addr: &mut sockaddr_storage) {
    let family = addr.ss_family;
    let place: *mut sockaddr_storage = addr;
    // SAFETY: large enough for either, and the family says which it is.
    unsafe {
        match c_int::from(family) {
            libc::AF_INET => (*place.cast::<libc::sockaddr_in>()).sin_addr.s_addr = 0,
            _ => (*place.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr = [0; 16],
        }
    }
}

/// The next four bytes by TCP, which stay there.
fn peek(fd: c_int, flags: c_int) -> Option<[u8; 4]> {
    let mut bytes = [0xFF; READY.len()];
    let flags = flags | libc::MSG_PEEK;
    // SAFETY: room for four bytes.
    let count = unsafe { next::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    (count == bytes.len() as isize).then_some(bytes)
}

/// The side that connected: waits until the other is ready.
fn connect_over_rdma(fd: c_int) -> Result<c_int, Stays> {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN | libc::POLLPRI,
        revents: 0,
    };
    // Who goes on by TCP too early takes what the other side says for data.
    // SAFETY: one entry.
    while unsafe { next::poll(&mut entry, 1, -1) } < 0 && next::errno() == libc::EINTR {}
    if is_told(fd) || peek(fd, 0) != Some(READY) {
        return Err(Stays::WithTheOther);
    }
    let (addr, len) = name(fd, next::getpeername).ok_or(Stays::AndTells)?;
    let mut bytes = READY;
    // SAFETY: room for four bytes, which are there.
    unsafe { next::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    let socket = stream(addr.ss_family.into()).ok_or(Stays::AndTells)?;
    let place: *const sockaddr_storage = &addr;
    // SAFETY: an address of that length.
    if unsafe { rdmacm::rconnect(socket, place.cast(), len) } == 0 {
        return Ok(socket);
    }
    // SAFETY: no pointers.
    unsafe { rdmacm::rclose(socket) };
    Err(Stays::AndTells)
}

/// The right to listen, among the processes of the host.
struct Turn(*mut libc::sem_t);

impl Turn {
    /// Waits for it; who had it and does not give it back is not waited for.
    fn take() -> Self {
        // SAFETY: a name, a mode and a value.
        let semaphore =
            unsafe { libc::sem_open(SEMAPHORE.as_ptr(), libc::O_CREAT, 0o666 as libc::c_uint, 1) };
        if semaphore != libc::SEM_FAILED {
            let mut limit = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: room for a time; an open semaphore.
            unsafe {
                libc::clock_gettime(libc::CLOCK_REALTIME, &mut limit);
                limit.tv_sec = limit.tv_sec.saturating_add((PATIENCE / 1000).into());
                // A signal does not give the turn, which is given back in the end.
                while libc::sem_timedwait(semaphore, &limit) != 0 && next::errno() == libc::EINTR {}
            }
        }
        Self(semaphore)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.0 != libc::SEM_FAILED {
            let mut turns = 0;
            // SAFETY: opened in `take`; room for a number.
            unsafe {
                libc::sem_getvalue(self.0, &mut turns);
                // If somebody who was not waited for has given it back meanwhile,
                // there would be two.
                if turns == 0 {
                    libc::sem_post(self.0);
                }
                libc::sem_close(self.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept_until_forgotten() {
        assert_eq!(state(9000), None);
        note(9000, State::New);
        note(9000, State::Active);
        assert_eq!(state(9000), Some(State::Active));
        assert_eq!(inside::enter(|| state(9000)), None);
        forget(9000);
        assert_eq!(state(9000), None);
    }

    #[test]
    fn the_wildcard_has_the_same_port() {
        // SAFETY: plain data, viewed as the family says.
        unsafe {
            let mut addr: sockaddr_storage = std::mem::zeroed();
            let place: *mut sockaddr_storage = &mut addr;
            let view = place.cast::<libc::sockaddr_in>();
            (*view).sin_family = libc::AF_INET as libc::sa_family_t;
            (*view).sin_port = 7;
            (*view).sin_addr.s_addr = 0x0100_007F;
            make_wildcard(&mut addr);
            assert_eq!(((*view).sin_port, (*view).sin_addr.s_addr), (7, 0));
        }
    }
}
