//! Epoll sets. A set of the program is one of the kernel, and without sockets
//! over RDMA nothing else. At the first of those it gets a set of librdmacm
//! beside it, which has them as members, and the kernel's set as one more.
//!
//! A set of librdmacm has a socket once, but the program may add several
//! descriptors of it. The second goes to a further set, which is a member of the
//! first, and so on.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{epoll_event, sigset_t, timespec};

use crate::connect::{Outcome, settle};
use crate::poll::{Deadline, limit, with_mask};
use crate::{fork, inside, memory, next, rdmacm, table};

/// Most events taken at once.
const MOST: usize = 256;
/// No event.
const BLANK: epoll_event = epoll_event { events: 0, u64: 0 };

/// A member of a set of librdmacm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// The kernel's set.
    Kernel,
    /// The further set with this descriptor.
    Further(c_int),
    /// A descriptor of the program.
    Program(c_int),
}

impl Tag {
    fn encode(self) -> u64 {
        let (kind, fd) = match self {
            Self::Program(fd) => (0u64, fd),
            Self::Further(set) => (1, set),
            Self::Kernel => (2, 0),
        };
        kind << 32 | u64::from(fd.cast_unsigned())
    }

    fn decode(data: u64) -> Self {
        let fd = (data as u32).cast_signed();
        match data >> 32 {
            0 => Self::Program(fd),
            1 => Self::Further(fd),
            _ => Self::Kernel,
        }
    }
}

/// A descriptor of the program in a set.
#[derive(Clone, Copy)]
struct Member {
    /// The set of librdmacm that it is in.
    within: c_int,
    /// The socket behind it.
    socket: c_int,
    /// What the program said of it.
    event: epoll_event,
}

/// A set that has had sockets over RDMA.
struct Mixed {
    /// The sets of librdmacm; all but the first are members of that.
    layers: Vec<c_int>,
    members: BTreeMap<c_int, Member>,
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

/// Makes `member` one of `set`, which reports that it can be read.
fn join(set: c_int, member: c_int, tag: Tag) -> bool {
    let mut event = epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: tag.encode(),
    };
    // SAFETY: an event.
    unsafe { rdmacm::repoll_ctl(set, libc::EPOLL_CTL_ADD, member, &mut event) == 0 }
}

/// A new set of librdmacm, if `connect` can connect it with another.
fn create(connect: impl FnOnce(c_int) -> bool) -> Option<c_int> {
    // SAFETY: no pointers.
    let set = unsafe { rdmacm::repoll_create(libc::EPOLL_CLOEXEC) };
    if set < 0 {
        return None;
    }
    if connect(set) {
        return Some(set);
    }
    let errno = next::errno();
    // SAFETY: no pointers.
    unsafe { rdmacm::rclose(set) };
    next::set_errno(errno);
    None
}

impl Mixed {
    /// The set beside that of the kernel.
    fn new(set: c_int) -> Option<Self> {
        let first = create(|first| join(first, set, Tag::Kernel))?;
        Some(Self {
            layers: vec![first],
            members: BTreeMap::new(),
        })
    }

    /// The set of librdmacm that has `fd` or, if it is to be added, one that it
    /// can be added to.
    fn layer_of(&mut self, operation: c_int, fd: c_int, socket: c_int) -> Option<c_int> {
        match self.members.get(&fd) {
            Some(member) if member.socket == socket => return Some(member.within),
            _ if operation == libc::EPOLL_CTL_ADD => {}
            _ => {
                next::set_errno(libc::ENOENT);
                return None;
            }
        }
        let members = &self.members;
        let has_none = |layer: &&c_int| {
            !members
                .values()
                .any(|member| member.socket == socket && member.within == **layer)
        };
        if let Some(layer) = self.layers.iter().find(has_none) {
            return Some(*layer);
        }
        let first = *self.layers.first()?;
        let further = create(|further| join(first, further, Tag::Further(further)))?;
        self.layers.push(further);
        Some(further)
    }

    /// `epoll_ctl(2)` for a socket over RDMA.
    fn control(
        &mut self,
        operation: c_int,
        fd: c_int,
        socket: c_int,
        event: Option<epoll_event>,
    ) -> c_int {
        let Some(within) = self.layer_of(operation, fd, socket) else {
            return -1;
        };
        let mut own = event.map(|event| epoll_event {
            events: event.events,
            u64: Tag::Program(fd).encode(),
        });
        let own = own
            .as_mut()
            .map_or(std::ptr::null_mut(), |own| own as *mut _);
        // SAFETY: null or an event.
        let status = unsafe { rdmacm::repoll_ctl(within, operation, socket, own) };
        if status == 0 {
            match event.filter(|_| operation != libc::EPOLL_CTL_DEL) {
                Some(event) => self.members.insert(
                    fd,
                    Member {
                        within,
                        socket,
                        event,
                    },
                ),
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
        for layer in mixed.layers {
            // SAFETY: no pointers.
            unsafe { rdmacm::rclose(layer) };
        }
    }
}

/// Forgets a socket that is closed, which leaves the sets of librdmacm itself.
pub fn forget(socket: c_int) {
    let Some(mut sets) = sets() else { return };
    for mixed in sets.values_mut() {
        mixed.members.retain(|_, member| member.socket != socket);
    }
}

/// Moves a socket that goes over to the kernel to the kernel's sets.
pub fn fall_back(socket: c_int) {
    let Some(mut sets) = sets() else { return };
    for (set, mixed) in sets.iter_mut() {
        let of_socket = |(fd, member): (&c_int, &Member)| {
            (member.socket == socket).then_some((*fd, member.event))
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
    let event = if operation == libc::EPOLL_CTL_DEL {
        None
    } else {
        // SAFETY: the caller's event.
        match unsafe { memory::read_one(event) } {
            Ok(Some(event)) => Some(event),
            _ => {
                next::set_errno(libc::EFAULT);
                return -1;
            }
        }
    };
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
    sets()?.get(&set)?.layers.first().copied()
}

/// What the program is to be told of a member; `None` if nothing.
fn report(set: c_int, fd: c_int, events: u32) -> Option<epoll_event> {
    let member = *sets()?.get(&set)?.members.get(&fd)?;
    let told = settle(fd, member.socket) == Outcome::Told;
    told.then_some(epoll_event {
        events,
        u64: member.event.u64,
    })
}

/// Takes events of a set of librdmacm.
fn take(from: c_int, room: &mut [epoll_event], timeout: c_int) -> Option<usize> {
    // SAFETY: room for so many events.
    let count =
        unsafe { rdmacm::repoll_wait(from, room.as_mut_ptr(), room.len() as c_int, timeout) };
    usize::try_from(count).ok()
}

/// Takes what members of the kernel's set have to report.
fn take_from_kernel(set: c_int, room: &mut [epoll_event]) -> usize {
    // SAFETY: room for so many events.
    let count = unsafe { next::epoll_wait(set, room.as_mut_ptr(), room.len() as c_int, 0) };
    usize::try_from(count).unwrap_or(0)
}

/// Waits for the members of all sets; returns what the program is to be told.
fn wait(set: c_int, first: c_int, most: usize, deadline: &Deadline) -> Option<Vec<epoll_event>> {
    let most = most.min(MOST);
    let mut taken = vec![BLANK; most];
    loop {
        let count = take(first, &mut taken, deadline.left())?;
        let mut told = Vec::with_capacity(most);
        let tell = |told: &mut Vec<_>, event: &epoll_event| {
            if let Tag::Program(fd) = Tag::decode(event.u64) {
                told.extend(report(set, fd, event.events));
            }
        };
        let events = taken.iter().take(count);
        events.clone().for_each(|event| tell(&mut told, event));
        // Sets with members of their own come last, for the room that is left.
        for tag in events.map(|event| Tag::decode(event.u64)) {
            let mut more = vec![BLANK; most.saturating_sub(told.len())];
            match tag {
                Tag::Program(_) => {}
                _ if more.is_empty() => {}
                Tag::Kernel => {
                    let count = take_from_kernel(set, &mut more);
                    told.extend(more.iter().take(count));
                }
                Tag::Further(further) => {
                    let count = take(further, &mut more, 0).unwrap_or(0);
                    let events = more.iter().take(count);
                    events.for_each(|event| tell(&mut told, event));
                }
            }
        }
        if !told.is_empty() || count == 0 {
            return Some(told);
        }
    }
}

/// [`wait`] for a call of the program.
///
/// # Safety
/// `events` has room for `most` events, or is no memory.
unsafe fn wait_for(
    (set, first): (c_int, c_int),
    events: *mut epoll_event,
    most: usize,
    deadline: &Deadline,
) -> c_int {
    let Some(told) = wait(set, first, most, deadline) else {
        return -1;
    };
    // SAFETY: the caller's room, of which not more is used.
    if let Err(errno) = unsafe { memory::write(events, &told) } {
        next::set_errno(errno);
        return -1;
    }
    c_int::try_from(told.len()).unwrap_or(c_int::MAX)
}

/// A set with sockets over RDMA, and how many events are wanted; `None` if the
/// call is for the kernel, as one is that asks for none.
fn find(set: c_int, most: c_int) -> Option<((c_int, c_int), usize)> {
    let most = usize::try_from(most).ok().filter(|most| *most > 0)?;
    Some(((set, beside(set)?), most))
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
    match find(set, most) {
        // SAFETY: the caller's room.
        Some((found, most)) => unsafe {
            wait_for(found, events, most, &Deadline::from_millis(timeout))
        },
        // SAFETY: as above.
        None => unsafe { next::epoll_wait(set, events, most, timeout) },
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
    match find(set, most) {
        // SAFETY: the caller's room and mask.
        Some((found, most)) => unsafe {
            with_mask(mask, || {
                wait_for(found, events, most, &Deadline::from_millis(timeout))
            })
        },
        // SAFETY: as above.
        None => unsafe { next::epoll_pwait(set, events, most, timeout, mask) },
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
    let Some((found, most)) = find(set, most) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::epoll_pwait2(set, events, most, timeout, mask) };
    };
    // SAFETY: the caller's time.
    match unsafe { limit(timeout) } {
        Ok(limit) => {
            let deadline = Deadline::after(limit);
            // SAFETY: the caller's room and mask.
            unsafe { with_mask(mask, || wait_for(found, events, most, &deadline)) }
        }
        Err(errno) => {
            next::set_errno(errno);
            -1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_they_were_written() {
        for tag in [Tag::Kernel, Tag::Further(7), Tag::Program(c_int::MAX)] {
            assert_eq!(Tag::decode(tag.encode()), tag);
        }
    }
}
