//! Waiting on a set: which events of sockets and of ordinary members there are.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use libc::epoll_event;

use crate::cancel::Uncancelled;
use crate::error::{Error, Result};
use crate::lock::atomic::Ordering;
use crate::lock::locked;

use super::member::{EDGE, Member, Members};
use super::set::{Set, Tag};
use crate::rsocket::wait;

impl wait::Awaited for Set {
    unsafe fn let_go(this: *const Self) {
        // SAFETY: the caller vouches for it.
        unsafe { Arc::decrement_strong_count(this) };
    }
}

impl Set {
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
        if events.is_empty() {
            return Ok((0, false));
        }
        // Into the program's own room, so that it gets as many at once as from
        // the kernel's set; what is not for it makes way.
        let count = self.epoll.wait(events, 0)?;
        let (mut reported, mut due) = (0, false);
        for place in 0..count {
            let Some(event) = events.get(place).copied() else {
                break;
            };
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
            self.watch(channel, tag)?;
            member.watched = Some(channel);
        }
        notifier.arm();
        Ok(())
    }

    pub(super) fn wait(
        &self,
        events: &mut [epoll_event],
        deadline: Option<Instant>,
    ) -> Result<usize> {
        let _uncancelled = Uncancelled::but_in_sleeps();
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
            if wait::sleeping(self, || wait::sleep(&mut entries, deadline))? == 0 {
                return Ok(0);
            }
        }
    }
}
