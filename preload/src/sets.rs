//! Which epoll sets have sockets over RDMA, and how. A set of the program is one
//! of the kernel, and without such sockets nothing else. At the first of those it
//! gets a set of librdmacm beside it, which has them as members, and the kernel's
//! set as one more.
//!
//! A set of librdmacm has a socket once, but the program may add several
//! descriptors of it. The second goes to a further set, which is a member of the
//! first, and so on.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::epoll_event;

use crate::connect::{Outcome, settle};
use crate::{inside, next, rdmacm, table};

/// A member of a set of librdmacm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
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

    /// What the library gave to a set of librdmacm as data.
    pub fn decode(data: u64) -> Self {
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

/// `epoll_ctl(2)` of `set` for a descriptor and the socket behind it.
pub fn control(
    set: c_int,
    operation: c_int,
    fd: c_int,
    socket: c_int,
    event: Option<epoll_event>,
) -> c_int {
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

/// The set of librdmacm beside that of the kernel.
pub fn beside(set: c_int) -> Option<c_int> {
    sets()?.get(&set)?.layers.first().copied()
}

/// What the program is to be told of a member; `None` if nothing.
pub fn report(set: c_int, fd: c_int, events: u32) -> Option<epoll_event> {
    let member = *sets()?.get(&set)?.members.get(&fd)?;
    let told = settle(fd, member.socket) == Outcome::Told;
    told.then_some(epoll_event {
        events,
        u64: member.event.u64,
    })
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
