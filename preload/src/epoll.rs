//! Epoll sets. A set of the program is one of the kernel, and without sockets
//! over RDMA nothing else. At the first of those it gets a set of librdmacm
//! beside it, which has them as members, and the kernel's set as one more.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{epoll_event, sigset_t, timespec};

use crate::connect::{Outcome, settle};
use crate::poll::{Deadline, limit, with_mask};
use crate::{fork, inside, next, rdmacm, table};

/// What librdmacm's set says of the kernel's; others are descriptors.
const KERNEL: u64 = u64::MAX;
/// Most events taken at once.
const MOST: usize = 256;

/// A set that has had sockets over RDMA.
struct Mixed {
    /// The set of librdmacm.
    over_rdma: c_int,
    /// What the program said of each descriptor, and the socket behind it.
    members: BTreeMap<c_int, (c_int, epoll_event)>,
}

static SETS: Mutex<BTreeMap<c_int, Mixed>> = Mutex::new(BTreeMap::new());

/// How many there are, so that programs without any take no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The sets, if there are any that the caller may know of.
fn sets() -> Option<MutexGuard<'static, BTreeMap<c_int, Mixed>>> {
    if COUNT.load(Ordering::Acquire) == 0 || inside::is_inside() {
        return None;
    }
    Some(all())
}

fn all() -> MutexGuard<'static, BTreeMap<c_int, Mixed>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mixed {
    /// The set beside that of the kernel.
    fn new(set: c_int) -> Option<Self> {
        // SAFETY: no pointers.
        let over_rdma = unsafe { rdmacm::repoll_create(libc::EPOLL_CLOEXEC) };
        if over_rdma < 0 {
            return None;
        }
        let mut event = epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: KERNEL,
        };
        // SAFETY: an event.
        let status = unsafe { rdmacm::repoll_ctl(over_rdma, libc::EPOLL_CTL_ADD, set, &mut event) };
        if status != 0 {
            let errno = next::errno();
            // SAFETY: no pointers.
            unsafe { rdmacm::rclose(over_rdma) };
            next::set_errno(errno);
            return None;
        }
        Some(Self {
            over_rdma,
            members: BTreeMap::new(),
        })
    }

    /// `epoll_ctl(2)` for a socket over RDMA.
    fn control(
        &mut self,
        operation: c_int,
        fd: c_int,
        socket: c_int,
        event: Option<epoll_event>,
    ) -> c_int {
        let mut own = event.map(|event| epoll_event {
            events: event.events,
            u64: u64::from(fd.cast_unsigned()),
        });
        let own = own
            .as_mut()
            .map_or(std::ptr::null_mut(), |own| own as *mut _);
        // SAFETY: null or an event.
        let status = unsafe { rdmacm::repoll_ctl(self.over_rdma, operation, socket, own) };
        if status == 0 {
            match event.filter(|_| operation != libc::EPOLL_CTL_DEL) {
                Some(event) => self.members.insert(fd, (socket, event)),
                None => self.members.remove(&fd),
            };
        }
        status
    }
}

/// Forgets a set that is closed.
pub fn close(set: c_int) {
    let removed = sets().and_then(|mut sets| {
        let ours = sets.contains_key(&set) && table::is_ours();
        ours.then(|| sets.remove(&set)).flatten()
    });
    if let Some(mixed) = removed {
        COUNT.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: no pointers.
        unsafe { rdmacm::rclose(mixed.over_rdma) };
    }
}

/// Forgets a socket that is closed, which leaves the sets of librdmacm itself.
pub fn forget(socket: c_int) {
    let Some(mut sets) = sets() else { return };
    for mixed in sets.values_mut() {
        mixed.members.retain(|_, (member, _)| *member != socket);
    }
}

/// Moves a socket that goes over to the kernel to the kernel's sets.
pub fn fall_back(socket: c_int) {
    let Some(mut sets) = sets() else { return };
    for (set, mixed) in sets.iter_mut() {
        let of_socket = |(fd, (member, event)): (&c_int, &(c_int, epoll_event))| {
            (*member == socket).then_some((*fd, *event))
        };
        let moved: Vec<_> = mixed.members.iter().filter_map(of_socket).collect();
        for (fd, mut event) in moved {
            mixed.control(libc::EPOLL_CTL_DEL, fd, socket, None);
            // SAFETY: an event.
            unsafe { next::epoll_ctl(*set, libc::EPOLL_CTL_ADD, fd, &mut event) };
        }
    }
}

/// `epoll_ctl(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some(socket) = fork::find_to_wait(fd) else {
        // SAFETY: the caller's event.
        return unsafe { next::epoll_ctl(set, operation, fd, event) };
    };
    let event = if event.is_null() {
        None
    } else {
        // SAFETY: not null; the caller vouches for the rest.
        Some(unsafe { event.read_unaligned() })
    };
    if event.is_none() && operation != libc::EPOLL_CTL_DEL {
        next::set_errno(libc::EFAULT);
        return -1;
    }
    let mut sets = all();
    if let Some(mixed) = sets.get_mut(&set) {
        return mixed.control(operation, fd, socket, event);
    }
    let Some(mut mixed) = Mixed::new(set) else {
        return -1;
    };
    let status = mixed.control(operation, fd, socket, event);
    sets.insert(set, mixed);
    COUNT.fetch_add(1, Ordering::AcqRel);
    status
}

/// The set of librdmacm beside that of the kernel.
fn beside(set: c_int) -> Option<c_int> {
    Some(sets()?.get(&set)?.over_rdma)
}

/// What the program is to be told of a member; `None` if nothing.
fn report(set: c_int, event: &epoll_event) -> Option<epoll_event> {
    let fd = (event.u64 as u32).cast_signed();
    let (socket, asked) = *sets()?.get(&set)?.members.get(&fd)?;
    let told = settle(fd, socket) == Outcome::Told;
    told.then_some(epoll_event {
        events: event.events,
        u64: asked.u64,
    })
}

/// Waits for the members of both sets.
fn wait(set: c_int, over_rdma: c_int, events: &mut [epoll_event], deadline: &Deadline) -> c_int {
    let blank = epoll_event { events: 0, u64: 0 };
    let mut taken = vec![blank; events.len().min(MOST)];
    loop {
        // SAFETY: room for so many events.
        let count = unsafe {
            rdmacm::repoll_wait(
                over_rdma,
                taken.as_mut_ptr(),
                taken.len() as c_int,
                deadline.left(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return count;
        };
        let (of_kernel, of_rdma): (Vec<epoll_event>, Vec<_>) = taken
            .iter()
            .take(count)
            .partition(|event| event.u64 == KERNEL);
        let mut told = 0;
        let reports = of_rdma.iter().filter_map(|event| report(set, event));
        for (room, report) in events.iter_mut().zip(reports) {
            *room = report;
            told += 1;
        }
        let rest = events.get_mut(told..).unwrap_or_default();
        if !of_kernel.is_empty() && !rest.is_empty() {
            // SAFETY: room for so many events.
            let more = unsafe { next::epoll_wait(set, rest.as_mut_ptr(), rest.len() as c_int, 0) };
            told = told.saturating_add(usize::try_from(more).unwrap_or(0));
        }
        if told > 0 || count == 0 {
            return c_int::try_from(told).unwrap_or(c_int::MAX);
        }
    }
}

/// # Safety
/// `events` is null or has room for `most` events.
unsafe fn slice<'a>(events: *mut epoll_event, most: c_int) -> Option<&'a mut [epoll_event]> {
    let most = usize::try_from(most).ok().filter(|most| *most > 0)?;
    if events.is_null() {
        return None;
    }
    // SAFETY: not null; the caller vouches for the rest.
    Some(unsafe { std::slice::from_raw_parts_mut(events, most) })
}

/// `epoll_wait(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's room.
    match (beside(set), unsafe { slice(events, most) }) {
        (Some(over_rdma), Some(events)) => {
            wait(set, over_rdma, events, &Deadline::from_millis(timeout))
        }
        // SAFETY: the caller's room.
        _ => unsafe { next::epoll_wait(set, events, most, timeout) },
    }
}

/// `epoll_pwait(2)`. With a socket over RDMA in the set, the mask is set before
/// and after the wait.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's room.
    match (beside(set), unsafe { slice(events, most) }) {
        (Some(over_rdma), Some(events)) => {
            // SAFETY: the caller's mask.
            unsafe {
                with_mask(mask, || {
                    wait(set, over_rdma, events, &Deadline::from_millis(timeout))
                })
            }
        }
        // SAFETY: the caller's room and mask.
        _ => unsafe { next::epoll_pwait(set, events, most, timeout, mask) },
    }
}

/// `epoll_pwait2(2)`, as [`epoll_pwait`].
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's room and time.
    let (found, time) = unsafe { (slice(events, most), limit(timeout)) };
    match (beside(set), found, time) {
        (Some(over_rdma), Some(events), Ok(limit)) => {
            let deadline = Deadline::after(limit);
            // SAFETY: the caller's mask.
            unsafe { with_mask(mask, || wait(set, over_rdma, events, &deadline)) }
        }
        // SAFETY: the caller's arguments.
        _ => unsafe { next::epoll_pwait2(set, events, most, timeout, mask) },
    }
}
