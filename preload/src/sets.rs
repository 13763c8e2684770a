//! Which epoll sets have sockets over RDMA, and how. A set of the program is one
//! of the kernel, and without such sockets nothing else. At the first of those it
//! gets a set of librdmacm as a member, which has the sockets as its own and which
//! the kernel reports as soon as one of them has something to tell. So whatever
//! waits for the program's set, by any of its descriptors, waits for both.
//!
//! A set of librdmacm has a socket once, but the program may add several
//! descriptors of it. The second goes to a further set, and so on.

use std::collections::BTreeMap;
use std::ffi::c_int;

use libc::epoll_event;

use crate::connect::{Outcome, settle};
use crate::lock::atomic::{AtomicUsize, Ordering};
use crate::lock::{Mutex, MutexGuard, locked};
use crate::{inside, next, rdmacm, table};

/// Where the kernel lists the descriptors of the process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Most events taken at once from a set of librdmacm.
const MOST: usize = 256;

/// No event.
const BLANK: epoll_event = epoll_event { events: 0, u64: 0 };

/// What the kernel's set has as data of sets of librdmacm: no address and no
/// small number, so that no program has it as its own.
const MARK: u64 = 0x5244_4D41 << 32;

/// What the kernel is asked of a set of librdmacm, with the descriptor of that.
fn marked(layer: c_int) -> epoll_event {
    epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: MARK | u64::from(layer.cast_unsigned()),
    }
}

/// The set of librdmacm that an event of the kernel's set is of, if of any.
fn layer(event: &epoll_event) -> Option<c_int> {
    let fd = (event.u64 as u32).cast_signed();
    (event.u64 == marked(fd).u64).then_some(fd)
}

/// A socket, and the descriptor by which the program added it.
type Name = (c_int, c_int);

/// A descriptor of the program in a set.
#[derive(Clone, Copy)]
struct Member {
    /// Its data in the set of librdmacm.
    number: u64,
    /// The set of librdmacm that it is in.
    within: c_int,
    /// What the program said of it.
    event: epoll_event,
}

/// A set that has had sockets over RDMA.
#[derive(Default)]
struct Mixed {
    /// Descriptors of the program by which it is known.
    descriptors: Vec<c_int>,
    /// The sets of librdmacm.
    layers: Vec<c_int>,
    members: BTreeMap<Name, Member>,
    numbers: BTreeMap<u64, Name>,
}

/// The sets of the program, and the number of the next member of any.
pub struct Sets {
    mixed: Vec<Mixed>,
    next: u64,
}

/// By no name: a set may have several descriptors.
pub static SETS: Mutex<Sets> = Mutex::new(Sets {
    mixed: Vec::new(),
    next: 0,
});

/// How many there are, so that programs without any take no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The sets, if there are any that the caller may know of.
fn sets() -> Option<MutexGuard<'static, Sets>> {
    is_used().then(|| locked(&SETS))
}

/// Whether there are any that the caller may know of.
pub fn is_used() -> bool {
    COUNT.load(Ordering::Acquire) > 0 && !inside::is_inside()
}

/// Asks the kernel whether its set `set` has `layer` as a member.
fn has(set: c_int, layer: c_int) -> bool {
    let errno = next::errno();
    // SAFETY: an event, which is what the member has.
    let status = unsafe { next::epoll_ctl(set, libc::EPOLL_CTL_MOD, layer, &mut marked(layer)) };
    next::set_errno(errno);
    status == 0
}

impl Mixed {
    /// A further set of librdmacm in the kernel's set `set`.
    fn add_layer(&mut self, set: c_int) -> Option<c_int> {
        // SAFETY: no pointers.
        let layer = unsafe { rdmacm::repoll_create(libc::EPOLL_CLOEXEC) };
        if layer < 0 {
            return None;
        }
        // SAFETY: an event.
        if unsafe { next::epoll_ctl(set, libc::EPOLL_CTL_ADD, layer, &mut marked(layer)) } == 0 {
            self.layers.push(layer);
            return Some(layer);
        }
        let errno = next::errno();
        // SAFETY: no pointers.
        unsafe { rdmacm::rclose(layer) };
        next::set_errno(errno);
        None
    }

    /// The members of a socket.
    fn of_socket(&self, socket: c_int) -> impl Iterator<Item = (Name, Member)> {
        let members = self.members.range((socket, 0)..=(socket, c_int::MAX));
        members.map(|(name, member)| (*name, *member))
    }

    /// A set of librdmacm in which `socket` is not yet.
    fn layer_without(&mut self, set: c_int, socket: c_int) -> Option<c_int> {
        let taken = |layer| {
            self.of_socket(socket)
                .any(|(_, member)| member.within == layer)
        };
        match self.layers.iter().copied().find(|layer| !taken(*layer)) {
            Some(layer) => Some(layer),
            None => self.add_layer(set),
        }
    }

    /// Forgets a member.
    fn remove(&mut self, name: Name) {
        if let Some(member) = self.members.remove(&name) {
            self.numbers.remove(&member.number);
        }
    }

    /// Adds a member, with a new number, or changes or removes one.
    fn control(
        &mut self,
        set: c_int,
        operation: c_int,
        name: Name,
        number: u64,
        event: Option<epoll_event>,
    ) -> c_int {
        let mut member = match (operation, self.members.get(&name), event) {
            (libc::EPOLL_CTL_ADD, None, Some(event)) => {
                let Some(within) = self.layer_without(set, name.0) else {
                    return -1;
                };
                Member {
                    number,
                    within,
                    event,
                }
            }
            (libc::EPOLL_CTL_ADD, Some(_), _) => return next::fail(libc::EEXIST),
            (libc::EPOLL_CTL_MOD, Some(member), Some(event)) if is_exclusive(member, &event) => {
                return next::fail(libc::EINVAL);
            }
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, Some(member), _) => *member,
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => {
                return next::fail(libc::ENOENT);
            }
            _ => return next::fail(libc::EINVAL),
        };
        let mut own = epoll_event {
            events: event.map_or(0, |event| event.events),
            u64: member.number,
        };
        // SAFETY: an event.
        let status = unsafe { rdmacm::repoll_ctl(member.within, operation, name.0, &mut own) };
        match event {
            _ if status != 0 => {}
            Some(event) => {
                member.event = event;
                self.members.insert(name, member);
                self.numbers.insert(member.number, name);
            }
            None => self.remove(name),
        }
        status
    }
}

/// Whether a member has `EPOLLEXCLUSIVE` or is to have it, which is for `ADD` only.
fn is_exclusive(member: &Member, event: &epoll_event) -> bool {
    (member.event.events | event.events) & libc::EPOLLEXCLUSIVE.cast_unsigned() != 0
}

impl Sets {
    /// What is known of the kernel's set `set`, by whichever descriptor.
    fn find(&mut self, set: c_int) -> Option<&mut Mixed> {
        let known = |mixed: &Mixed| mixed.descriptors.contains(&set);
        let same = |mixed: &Mixed| mixed.layers.first().is_some_and(|layer| has(set, *layer));
        let mut mixed = self.mixed.iter();
        let place = match mixed.position(known) {
            Some(place) => place,
            None => self.mixed.iter().position(same)?,
        };
        let found = self.mixed.get_mut(place)?;
        if !found.descriptors.contains(&set) {
            found.descriptors.push(set);
        }
        Some(found)
    }

    /// As [`Sets::find`]; a set of which nothing was known gets one of librdmacm.
    fn find_or_make(&mut self, set: c_int) -> Option<&mut Mixed> {
        if self.find(set).is_none() {
            let mut made = Mixed::default();
            made.add_layer(set)?;
            made.descriptors.push(set);
            self.mixed.push(made);
            COUNT.fetch_add(1, Ordering::AcqRel);
        }
        self.find(set)
    }
}

/// `epoll_ctl(2)` of `set` for a descriptor and the socket behind it; without
/// `event` to remove it.
pub fn control(
    set: c_int,
    operation: c_int,
    fd: c_int,
    socket: c_int,
    event: Option<epoll_event>,
) -> c_int {
    let mut sets = locked(&SETS);
    let number = sets.next;
    sets.next = number.wrapping_add(1);
    let Some(mixed) = sets.find_or_make(set) else {
        return -1;
    };
    mixed.control(set, operation, (socket, fd), number, event)
}

/// Forgets a descriptor of a set that is closed, and the set with its last.
pub fn close(set: c_int) {
    let Some(mut sets) = sets() else { return };
    let known = |mixed: &Mixed| mixed.descriptors.contains(&set);
    let Some(place) = sets.mixed.iter().position(known) else {
        return;
    };
    if !table::is_ours() {
        return;
    }
    if let Some(mixed) = sets.mixed.get_mut(place) {
        mixed.descriptors.retain(|known| *known != set);
        if mixed.descriptors.is_empty() {
            // Others may be duplicates that were made before all this.
            mixed.descriptors = others(set, &mixed.layers);
        }
        if !mixed.descriptors.is_empty() {
            return;
        }
    }
    let closed = sets.mixed.swap_remove(place);
    COUNT.fetch_sub(1, Ordering::AcqRel);
    drop(sets);
    for layer in closed.layers {
        // SAFETY: no pointers.
        unsafe { rdmacm::rclose(layer) };
    }
}

/// Descriptors of the process but `set` that are of the set with these layers.
fn others(set: c_int, layers: &[c_int]) -> Vec<c_int> {
    let listed = std::fs::read_dir(DESCRIPTORS).into_iter().flatten();
    let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let first = layers.first().copied();
    numbers
        .filter(|fd| *fd != set && first.is_some_and(|first| has(*fd, first)))
        .collect()
}

/// Forgets a socket that is closed, which leaves the sets of librdmacm itself.
pub fn forget(socket: c_int) {
    let Some(mut sets) = sets() else { return };
    for mixed in &mut sets.mixed {
        let names: Vec<_> = mixed.of_socket(socket).map(|(name, _)| name).collect();
        names.into_iter().for_each(|name| mixed.remove(name));
    }
}

/// Moves a socket that goes over to the kernel to the kernel's sets.
pub fn fall_back(socket: c_int) {
    let Some(mut sets) = sets() else { return };
    for mixed in &mut sets.mixed {
        let moved: Vec<_> = mixed.of_socket(socket).collect();
        for (name, mut member) in moved {
            let Some(set) = mixed.descriptors.first().copied() else {
                continue;
            };
            mixed.control(set, libc::EPOLL_CTL_DEL, name, 0, None);
            // SAFETY: an event.
            unsafe { next::epoll_ctl(set, libc::EPOLL_CTL_ADD, name.1, &mut member.event) };
        }
    }
}

/// What the program is to be told of a member with that number; `None` if
/// nothing.
fn report(number: u64, events: u32) -> Option<epoll_event> {
    let ((socket, fd), member) = {
        let sets = sets()?;
        sets.mixed.iter().find_map(|mixed| {
            let name = mixed.numbers.get(&number)?;
            Some((*name, *mixed.members.get(name)?))
        })?
    };
    let told = settle(fd, socket) == Outcome::Told;
    told.then_some(epoll_event {
        events,
        u64: member.event.u64,
    })
}

/// Takes what members of a set of librdmacm have to report, no more than there
/// is room for.
///
/// # Errors
/// The number of the error.
fn take(layer: c_int, room: usize) -> Result<Vec<epoll_event>, c_int> {
    let mut taken = vec![BLANK; room];
    let (place, room) = (taken.as_mut_ptr(), room as c_int);
    // SAFETY: room for so many events.
    let count = unsafe { rdmacm::repoll_wait(layer, place, room, 0) };
    let count = usize::try_from(count).map_err(|_| next::errno())?;
    let told = taken.iter().take(count);
    Ok(told
        .filter_map(|event| report(event.u64, event.events))
        .collect())
}

/// What the program is to be told of what the kernel reports of one of its sets,
/// at most `most` events; `None` if that is the same.
///
/// # Errors
/// The number of the error.
pub fn resolve(reported: &[epoll_event], most: usize) -> Result<Option<Vec<epoll_event>>, c_int> {
    if !is_used() || reported.iter().all(|event| layer(event).is_none()) {
        return Ok(None);
    }
    let own = reported.iter().filter(|event| layer(event).is_none());
    let mut told: Vec<_> = own.copied().collect();
    for layer in reported.iter().filter_map(layer) {
        let room = most.saturating_sub(told.len()).min(MOST);
        if room > 0 {
            told.extend(take(layer, room)?);
        }
    }
    Ok(Some(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_librdmacm_are_told_from_data_of_programs() {
        for fd in [0, 7, c_int::MAX] {
            assert_eq!(layer(&marked(fd)), Some(fd));
        }
        let place = 0u64;
        for data in [0, 7, u64::MAX, (&raw const place).addr() as u64] {
            let event = epoll_event {
                events: 1,
                u64: data,
            };
            assert_eq!(layer(&event), None);
        }
    }
}
