//! Epoll sets of sockets over RDMA and ordinary descriptors (`repoll_create`,
//! `repoll_ctl`, `repoll_wait`) with the semantics of epoll(7).
//!
//! A set is an epoll set of the kernel. Ordinary descriptors are members of
//! it and the kernel alone decides on their events. For sockets the kernel
//! watches their completion channels and an eventfd that sockets signal; what
//! they report is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use libc::epoll_event;

use crate::error::{Error, Result};
use crate::lock::locked;

use super::socket::Socket;
use super::table::{Removed, Table};
use super::wait::{Notes, Wake};
use super::{fork, sockets, wait};

static SETS: Table<Arc<Set>> = Table::new();

/// All sets, and in which generation of forks they were made.
static ALL: Mutex<Vec<(u32, Weak<Set>)>> = Mutex::new(Vec::new());

/// Events taken from the kernel at once.
const BATCH: usize = 64;
/// Events that are reported whether asked for or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

/// What the kernel's data of a member says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Ordinary(RawFd),
    /// The completion channel of the socket with this descriptor.
    Completions(RawFd),
    Wake,
}

impl Tag {
    fn encode(self) -> u64 {
        let (kind, fd) = match self {
            Self::Ordinary(fd) => (0u64, fd),
            Self::Completions(fd) => (1, fd),
            Self::Wake => (2, 0),
        };
        kind << 32 | u64::from(fd.cast_unsigned())
    }

    fn decode(data: u64) -> Self {
        let fd = (data as u32).cast_signed();
        match data >> 32 {
            0 => Self::Ordinary(fd),
            1 => Self::Completions(fd),
            _ => Self::Wake,
        }
    }
}

/// A socket in a set.
struct Member {
    socket: Socket,
    events: u32,
    data: u64,
    /// Waits to be modified after its one report.
    disabled: bool,
    /// How often the socket had changed at the last report.
    seen: Option<u64>,
    /// Its completion channel is in the kernel's set.
    watched: Option<RawFd>,
}

#[derive(Default)]
struct Members {
    sockets: BTreeMap<RawFd, Member>,
    /// The program's data of ordinary members.
    ordinary: BTreeMap<RawFd, u64>,
    /// Sockets to look at: they may have something to report. The others
    /// had nothing when looked at last, and will tell.
    due: BTreeSet<RawFd>,
    /// Where the next look at the sockets begins, so that each has its turn.
    next: RawFd,
    /// The kernel's events come first at the next call.
    kernel_first: bool,
    /// The eventfd has been seen or made readable and not been cleared since.
    signalled: bool,
}

/// An epoll set.
struct Set {
    epoll: OwnedFd,
    wake: Arc<Wake>,
    notes: Arc<Notes>,
    members: Mutex<Members>,
    closed: AtomicBool,
}

/// Creates a set and returns its descriptor; `close_on_exec` as for
/// `epoll_create1(2)`.
///
/// # Errors
/// What the kernel says.
pub fn create(close_on_exec: bool) -> Result<RawFd> {
    let flags = if close_on_exec {
        libc::EPOLL_CLOEXEC
    } else {
        0
    };
    // SAFETY: no pointers.
    let fd = unsafe { libc::epoll_create1(flags) };
    if fd < 0 {
        return Err(Error::last_os("create an epoll set"));
    }
    let set = Set {
        // SAFETY: just opened and nobody else's.
        epoll: unsafe { OwnedFd::from_raw_fd(fd) },
        wake: Arc::new(Wake::new()?),
        notes: Arc::default(),
        members: Mutex::new(Members::default()),
        closed: AtomicBool::new(false),
    };
    set.kernel_ctl(
        libc::EPOLL_CTL_ADD,
        set.wake.as_raw_fd(),
        libc::EPOLLIN as u32,
        Tag::Wake,
    )?;
    let set = Arc::new(set);
    let mut all = locked(&ALL);
    all.retain(|(_, set)| set.strong_count() > 0);
    all.push((fork::generation(), Arc::downgrade(&set)));
    drop(all);
    SETS.insert(fd, set)?;
    Ok(fd)
}

/// Removes a socket that is being closed from all sets, as the kernel does.
pub fn forget(socket: &Socket) {
    let fd = socket.descriptor();
    let sets: Vec<_> = locked(&ALL)
        .iter()
        .filter(|(generation, _)| *generation == fork::generation())
        .filter_map(|(_, set)| set.upgrade())
        .collect();
    for set in sets {
        let mut members = locked(&set.members);
        let member = members.sockets.remove(&fd);
        drop(members);
        if let Some(member) = member {
            set.release(&member);
        }
    }
}

/// Closes a set; `false` if the descriptor is none. Threads that wait on it
/// return with `EBADF`.
pub fn close(fd: RawFd) -> bool {
    match SETS.remove(fd) {
        None => return false,
        Some(Removed::Own(set)) => {
            set.closed.store(true, Ordering::Release);
            set.wake.signal();
        }
        Some(Removed::Inherited(_)) => {
            // SAFETY: this process's copy of a parent's descriptor.
            unsafe { libc::close(fd) };
        }
    }
    true
}

/// What to do with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Add it.
    Add,
    /// Change its events and data.
    Modify,
    /// Remove it.
    Remove,
}

impl Operation {
    fn number(self) -> i32 {
        match self {
            Self::Add => libc::EPOLL_CTL_ADD,
            Self::Modify => libc::EPOLL_CTL_MOD,
            Self::Remove => libc::EPOLL_CTL_DEL,
        }
    }
}

/// Adds, changes or removes a member.
///
/// # Errors
/// As `epoll_ctl(2)`: `EBADF`, `EEXIST`, `ENOENT`, `EINVAL` for what is no
/// set or for a set in itself, `EPERM`, `ENOMEM`, `ENOSPC`.
pub fn control(epfd: RawFd, operation: Operation, fd: RawFd, event: epoll_event) -> Result<()> {
    let set = find(epfd)?;
    if fd == epfd {
        return Err(Error::invalid("put an epoll set into itself"));
    }
    let mut members = locked(&set.members);
    set.forget_closed(&mut members);
    match sockets::find(fd) {
        Some(socket) => set.control_socket(&mut members, operation, fd, socket, event),
        None => set.control_ordinary(&mut members, operation, fd, event),
    }
}

/// Waits until members have events, puts them into `events` and returns how
/// many there are, 0 at the end of `timeout_ms` (negative: none).
///
/// # Errors
/// `EBADF`, `EINVAL` for what is no set or no room for events, `EINTR`.
pub fn wait(epfd: RawFd, events: &mut [epoll_event], timeout_ms: i32) -> Result<usize> {
    let set = find(epfd)?;
    if events.is_empty() {
        return Err(Error::invalid("wait for no events"));
    }
    set.wait(events, wait::deadline_after(timeout_ms))
}

fn find(epfd: RawFd) -> Result<Arc<Set>> {
    SETS.get(epfd).ok_or_else(|| {
        // SAFETY: no pointers.
        let open = unsafe { libc::fcntl(epfd, libc::F_GETFD) } >= 0;
        let errno = if open { libc::EINVAL } else { libc::EBADF };
        Error::new(errno, "use what is no epoll set")
    })
}

impl Set {
    fn kernel_ctl(&self, operation: i32, fd: RawFd, events: u32, tag: Tag) -> Result<()> {
        let mut event = epoll_event {
            events,
            u64: tag.encode(),
        };
        // SAFETY: the event lives until the call ends.
        let status = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &mut event) };
        if status != 0 {
            return Err(Error::last_os("change an epoll set"));
        }
        Ok(())
    }

    fn control_ordinary(
        &self,
        members: &mut Members,
        operation: Operation,
        fd: RawFd,
        event: epoll_event,
    ) -> Result<()> {
        self.kernel_ctl(operation.number(), fd, event.events, Tag::Ordinary(fd))?;
        if operation == Operation::Remove {
            members.ordinary.remove(&fd);
        } else {
            members.ordinary.insert(fd, event.u64);
        }
        Ok(())
    }

    fn control_socket(
        &self,
        members: &mut Members,
        operation: Operation,
        fd: RawFd,
        socket: Socket,
        event: epoll_event,
    ) -> Result<()> {
        let known = members.sockets.contains_key(&fd);
        match (operation, known) {
            (Operation::Add, true) => return Err(Error::new(libc::EEXIST, "add a member twice")),
            (Operation::Add, false) => {
                let noted = Some((Arc::clone(&self.notes), fd));
                socket.common().waiters().add(&self.wake, noted);
                members.sockets.insert(
                    fd,
                    Member {
                        socket,
                        events: event.events,
                        data: event.u64,
                        disabled: false,
                        seen: None,
                        watched: None,
                    },
                );
            }
            (_, false) => return Err(Error::new(libc::ENOENT, "change what is no member")),
            (Operation::Modify, true) => {
                if let Some(member) = members.sockets.get_mut(&fd) {
                    member.events = event.events;
                    member.data = event.u64;
                    member.disabled = false;
                    member.seen = None;
                }
            }
            (Operation::Remove, true) => {
                if let Some(member) = members.sockets.remove(&fd) {
                    self.release(&member);
                }
            }
        }
        // Another thread may wait, and the member may be ready.
        members.due.insert(fd);
        self.wake.signal();
        Ok(())
    }

    fn release(&self, member: &Member) {
        member.socket.common().waiters().remove(&self.wake);
        if let Some(fd) = member.watched {
            // It may be closed already.
            let _ = self.kernel_ctl(libc::EPOLL_CTL_DEL, fd, 0, Tag::Wake);
        }
    }

    /// Closed sockets are no members any more, as with the kernel's.
    fn forget_closed(&self, members: &mut Members) {
        members.sockets.retain(|_, member| {
            let open = !member.socket.common().is_closed();
            if !open {
                self.release(member);
            }
            open
        });
    }

    fn wait(&self, events: &mut [epoll_event], deadline: Option<Instant>) -> Result<usize> {
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::new(libc::EBADF, "wait on a closed epoll set"));
            }
            let (count, more) = self.collect(events)?;
            if count > 0 {
                return Ok(count);
            }
            if more {
                continue;
            }
            let mut entries = [wait::readable(self.epoll.as_raw_fd())];
            if wait::sleep(&mut entries, deadline)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Events of sockets and ordinary members that are there now, and whether
    /// there may be more at once. Neither kind can keep the other from being
    /// reported.
    fn collect(&self, events: &mut [epoll_event]) -> Result<(usize, bool)> {
        let mut members = locked(&self.members);
        members.kernel_first = !members.kernel_first;
        self.take_notes(&mut members);
        if members.kernel_first {
            let (count, _) = self.collect_ordinary(&mut members, events)?;
            self.take_notes(&mut members);
            let rest = events.get_mut(count..).unwrap_or_default();
            let count = count + self.collect_sockets(&mut members, rest)?;
            self.signal_rest(&mut members);
            return Ok((count, false));
        }
        let count = self.collect_sockets(&mut members, events)?;
        let rest = events.get_mut(count..).unwrap_or_default();
        let (ordinary, more) = self.collect_ordinary(&mut members, rest)?;
        self.signal_rest(&mut members);
        Ok((count + ordinary, more))
    }

    /// Leaves the kernel's set readable exactly as long as there is something
    /// to look at: other threads, or other sets, may wait for it.
    fn signal_rest(&self, members: &mut Members) {
        if members.signalled && members.due.is_empty() {
            self.wake.clear();
            members.signalled = false;
        }
        // Looked at after the eventfd was cleared, so that nothing is missed.
        let rest = !members.due.is_empty()
            || !self.notes.is_empty()
            || self.closed.load(Ordering::Acquire);
        if rest && !members.signalled {
            self.wake.signal();
            members.signalled = true;
        }
    }

    /// Sockets that others have changed are to be looked at.
    fn take_notes(&self, members: &mut Members) {
        let noted = self.notes.take();
        if !noted.is_empty() {
            members.due.extend(noted);
            self.forget_closed(members);
        }
    }

    /// Events of ordinary members, and whether sockets have become due.
    fn collect_ordinary(
        &self,
        members: &mut Members,
        events: &mut [epoll_event],
    ) -> Result<(usize, bool)> {
        let mut batch = [epoll_event { events: 0, u64: 0 }; BATCH];
        let room = events.len().min(BATCH);
        if room == 0 {
            return Ok((0, false));
        }
        // SAFETY: room for that many events.
        let count =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), batch.as_mut_ptr(), room as i32, 0) };
        let count = usize::try_from(count).map_err(|_| Error::last_os("wait on an epoll set"))?;
        let (mut reported, mut due) = (0, false);
        for event in batch.iter().take(count) {
            match Tag::decode(event.u64) {
                Tag::Wake => {
                    members.signalled = true;
                    due = true;
                }
                Tag::Completions(fd) => {
                    members.due.insert(fd);
                    due = true;
                    if let Some(member) = members.sockets.get(&fd)
                        && let Some(notifier) = member.socket.notifier()
                    {
                        // Others who wait for it learn of what has completed.
                        self.notes.without(|| {
                            notifier.take_notification();
                            member.socket.poll(0)
                        });
                    }
                }
                Tag::Ordinary(fd) => {
                    if let (Some(data), Some(place)) =
                        (members.ordinary.get(&fd), events.get_mut(reported))
                    {
                        *place = epoll_event {
                            events: event.events,
                            u64: *data,
                        };
                        reported += 1;
                    }
                }
            }
        }
        Ok((reported, due))
    }

    fn collect_sockets(&self, members: &mut Members, events: &mut [epoll_event]) -> Result<usize> {
        let first = members.next;
        let mut order: Vec<_> = members.due.range(first..).copied().collect();
        order.extend(members.due.range(..first));
        let mut places = events.iter_mut();
        let mut count = 0;
        for fd in order {
            if places.len() == 0 {
                members.next = fd;
                break;
            }
            let Some(member) = members.sockets.get_mut(&fd) else {
                members.due.remove(&fd);
                continue;
            };
            // First it is seen to that it tells, then it is looked at.
            self.arm(fd, member)?;
            let report = self.notes.without(|| member.report());
            if report.is_none() || member.events & EDGE != 0 || member.disabled {
                members.due.remove(&fd);
            }
            if let Some(event) = report
                && let Some(place) = places.next()
            {
                *place = event;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Sees to it that the socket tells of its completions.
    fn arm(&self, fd: RawFd, member: &mut Member) -> Result<()> {
        let Some(notifier) = member.socket.notifier() else {
            return Ok(());
        };
        if member.watched.is_none() {
            let channel = notifier.notification_fd();
            let tag = Tag::Completions(fd);
            self.kernel_ctl(libc::EPOLL_CTL_ADD, channel, libc::EPOLLIN as u32, tag)?;
            member.watched = Some(channel);
        }
        notifier.arm();
        Ok(())
    }
}

impl Member {
    /// What the socket reports, and how often it had changed by then: a change
    /// after that is an edge.
    fn look(&self, interest: i16) -> (u32, u64) {
        let waiters = self.socket.common().waiters();
        let mut before = waiters.changes();
        loop {
            let ready = u32::from(self.socket.poll(interest).cast_unsigned());
            let changes = waiters.changes();
            // A look that finds something changes the socket itself, and what
            // others change meanwhile is to be seen as well.
            if changes == before {
                return (ready, changes);
            }
            before = changes;
        }
    }

    /// What is to be reported of the socket now.
    fn report(&mut self) -> Option<epoll_event> {
        if self.disabled {
            return None;
        }
        let interest = (self.events | ALWAYS) & 0xFFFF;
        let (ready, changes) = self.look(interest as i16);
        if ready == 0 {
            self.seen = None;
            return None;
        }
        if self.events & EDGE != 0 {
            if self.seen == Some(changes) {
                return None;
            }
            self.seen = Some(changes);
        }
        self.disabled = self.events & ONE_SHOT != 0;
        Some(epoll_event {
            events: ready,
            u64: self.data,
        })
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let members = std::mem::take(&mut *locked(&self.members));
        for member in members.sockets.values() {
            self.release(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Write, pipe};

    fn event(events: i32, data: u64) -> epoll_event {
        epoll_event {
            events: events as u32,
            u64: data,
        }
    }

    #[test]
    fn tags_survive() {
        for tag in [Tag::Ordinary(7), Tag::Completions(i32::MAX), Tag::Wake] {
            assert_eq!(Tag::decode(tag.encode()), tag);
        }
    }

    #[test]
    fn ordinary_descriptors_behave_as_in_the_kernel() {
        let set = create(true).unwrap();
        let (reader, mut writer) = pipe().unwrap();
        let fd = reader.as_raw_fd();
        let ctl = |operation, flags| control(set, operation, fd, event(flags, 42));
        let errno = |result: Result<()>| result.map_err(|error| error.errno());
        assert_eq!(errno(ctl(Operation::Modify, 0)), Err(libc::ENOENT));
        ctl(Operation::Add, libc::EPOLLIN | libc::EPOLLET).unwrap();
        assert_eq!(errno(ctl(Operation::Add, 0)), Err(libc::EEXIST));
        assert_eq!(
            errno(control(set, Operation::Add, set, event(0, 0))),
            Err(libc::EINVAL)
        );
        assert_eq!(
            errno(control(set, Operation::Add, -1, event(0, 0))),
            Err(libc::EBADF)
        );

        let mut events = [event(0, 0); 4];
        assert_eq!(wait(set, &mut events, 0), Ok(0));
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(set, &mut events, -1), Ok(1));
        assert_eq!({ events[0].u64 }, 42);
        assert_eq!(wait(set, &mut events, 10), Ok(0), "the edge was reported");
        assert!(close(set));
        assert!(!close(set));
    }
}
