//! Waiting for events on any mixture of sockets over RDMA and ordinary
//! descriptors: `rpoll` and `rselect`.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::pollfd;

use crate::cancel::{Uncancelled, holding};
use crate::error::{Error, Result};

use super::looking::Wait;
use super::socket::Socket;
use super::sockets;
use super::wait::{readable, sleep_for, sleep_on};
use super::waiters::Registered;
use super::wake::Wake;

/// Places in the kernel's list: of the thread's wake-up, and of the completion channel
/// of the first socket.
const WAKE: usize = 0;
const CHANNELS: usize = 1;

/// A socket among the descriptors of a call.
struct Polled {
    /// Its place in the call.
    place: usize,
    socket: Socket,
    /// How often it had changed when it was looked at last.
    seen: u64,
}

impl Polled {
    /// What it reports, to its entry; returns whether that is anything.
    fn check(&mut self, entries: &mut [pollfd]) -> bool {
        let Some(entry) = entries.get_mut(self.place) else {
            return false;
        };
        // Counted before the look, so that a change after it is not missed.
        self.seen = self.socket.common().waiters().changes();
        entry.revents = look(&self.socket, entry.events);
        entry.revents != 0
    }

    fn has_changed(&self) -> bool {
        self.socket.common().waiters().changes() != self.seen
    }
}

fn look(socket: &Socket, events: i16) -> i16 {
    if socket.common().is_closed() {
        return libc::POLLNVAL;
    }
    socket.poll(events)
}

/// The sockets among the descriptors of a call.
struct Sockets {
    list: Vec<Polled>,
    total: usize,
}

/// `poll(2)`; `timeout` of `None` means no limit. Returns the number of
/// entries with something to report.
///
/// # Errors
/// `EINTR`, `EINVAL` for too many entries, `ENOMEM`.
pub fn poll(entries: &mut [pollfd], timeout: Option<Duration>) -> Result<usize> {
    let (found, ready) = glance(entries);
    if found == 0 {
        return sleep_for(entries, timeout);
    }
    let sockets_only = found == entries.len();
    let at_once = timeout == Some(Duration::ZERO);
    if sockets_only && (ready > 0 || at_once) {
        return Ok(ready);
    }
    let _uncancelled = Uncancelled::but_in_sleeps();
    let mut sockets = Sockets::find(entries);
    if sockets_only && sockets.list.len() < found {
        return Ok(sockets.report_closed(entries));
    }
    if ready > 0 || at_once {
        let ready = sockets.look(entries)?;
        if ready > 0 || at_once {
            return Ok(ready);
        }
    }
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut wait = if sockets_only {
        Wait::adaptive(found, deadline)
    } else {
        Wait::mixed(found)
    };
    while wait.looks_again() {
        let ready = sockets.look(entries)?;
        if ready > 0 {
            wait.found();
            return Ok(ready);
        }
    }
    wait.sleeps();
    let sleeper = Sleeper::new(sockets, entries);
    let ready = holding(sleeper, |sleeper| sleeper.sleep(entries, deadline))?;
    if ready > 0 {
        wait.woken();
    }
    Ok(ready)
}

/// One look at the sockets, without keeping them. Returns how many there are,
/// and how many of them report something.
fn glance(entries: &mut [pollfd]) -> (usize, usize) {
    let (mut found, mut ready) = (0, 0);
    for entry in entries {
        let (fd, events) = (entry.fd, entry.events);
        if let Some(reported) = sockets::glance(fd, |socket| look(socket, events)) {
            found += 1;
            entry.revents = reported;
            ready += usize::from(reported != 0);
        }
    }
    (found, ready)
}

impl Sockets {
    fn find(entries: &[pollfd]) -> Self {
        let list = entries.iter().enumerate().filter_map(|(place, entry)| {
            let socket = sockets::find(entry.fd)?;
            // Not looked at yet, so that the first comparison finds a change.
            let seen = socket.common().waiters().changes().wrapping_sub(1);
            Some(Polled {
                place,
                socket,
                seen,
            })
        });
        Self {
            list: list.collect(),
            total: entries.len(),
        }
    }

    /// What every entry reports now; returns how many report something.
    fn look(&mut self, entries: &mut [pollfd]) -> Result<usize> {
        let ready = self.check_all(entries);
        if self.list.len() == self.total {
            return Ok(ready);
        }
        let mut list = self.kernel_list(entries, None);
        sleep_for(&mut list, Some(Duration::ZERO))?;
        Ok(ready.saturating_add(self.take_ordinary(entries, &list)))
    }

    /// Reports what the sockets of a call say, whose other entries were sockets when it
    /// began and were closed since; returns how many report something.
    fn report_closed(&mut self, entries: &mut [pollfd]) -> usize {
        let mut ready = self.check_all(entries);
        for entry in self.ordinary(entries.iter_mut()) {
            entry.revents = libc::POLLNVAL;
            ready = ready.saturating_add(1);
        }
        ready
    }

    fn check_all(&mut self, entries: &mut [pollfd]) -> usize {
        let ready = self.list.iter_mut().map(|polled| polled.check(entries));
        ready.map(usize::from).sum()
    }

    /// What the kernel is asked: the thread's wake-up, room for the completion
    /// channel of each socket, then the ordinary descriptors. No others, so that as
    /// many entries as the kernel takes (`RLIMIT_NOFILE`) do not become too many.
    fn kernel_list(&self, entries: &[pollfd], wake: Option<&Wake>) -> Vec<pollfd> {
        let mut list = vec![readable(-1); self.list.len().saturating_add(CHANNELS)];
        if let (Some(entry), Some(wake)) = (list.get_mut(WAKE), wake) {
            entry.fd = wake.as_raw_fd();
        }
        let ordinary = self.ordinary(entries.iter());
        list.extend(ordinary.filter(|entry| entry.fd >= 0).copied());
        list
    }

    /// Of the entries of the call, or what belongs to them, those of ordinary
    /// descriptors.
    fn ordinary<T>(&self, entries: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let mut sockets = self.list.iter().map(|polled| polled.place).peekable();
        entries
            .enumerate()
            .filter(move |(place, _)| sockets.next_if_eq(place).is_none())
            .map(|(_, entry)| entry)
    }

    /// Copies what the kernel said of ordinary descriptors; returns how many
    /// of them report something.
    fn take_ordinary(&self, entries: &mut [pollfd], list: &[pollfd]) -> usize {
        let mut said = list.iter().skip(self.list.len().saturating_add(CHANNELS));
        let mut ready = 0;
        for entry in self.ordinary(entries.iter_mut()) {
            let asked = entry.fd >= 0;
            let said = asked.then(|| said.next()).flatten();
            entry.revents = said.map_or(0, |said| said.revents);
            ready += usize::from(entry.revents != 0);
        }
        ready
    }
}

/// What a call that sleeps has.
struct Sleeper {
    sockets: Sockets,
    /// With each of the sockets.
    _registered: Vec<Registered>,
    wake: Arc<Wake>,
    /// What the kernel is asked.
    list: Vec<pollfd>,
}

impl Sleeper {
    fn new(sockets: Sockets, entries: &[pollfd]) -> Self {
        let wake = Wake::of_thread();
        let waiters = sockets.list.iter().map(|it| it.socket.common().waiters());
        Self {
            _registered: waiters.map(|waiters| waiters.register(&wake)).collect(),
            list: sockets.kernel_list(entries, Some(&wake)),
            sockets,
            wake,
        }
    }

    fn sleep(&mut self, entries: &mut [pollfd], deadline: Option<Instant>) -> Result<usize> {
        loop {
            let mut ready = 0;
            let channels = self.list.iter_mut().skip(CHANNELS);
            for (polled, channel) in self.sockets.list.iter_mut().zip(channels) {
                let armed = polled.socket.notifier().is_some_and(|notifier| {
                    // A socket that has connected meanwhile had none before.
                    channel.fd = notifier.notification_fd();
                    notifier.arm()
                });
                // One that was armed before and has not changed since it was
                // looked at will tell.
                let stale = armed || polled.has_changed();
                ready += usize::from(stale && polled.check(entries));
            }
            let ordinary = self.sockets.list.len() < self.sockets.total;
            if ready > 0 && !ordinary {
                return Ok(ready);
            }
            let happened = if ready > 0 {
                sleep_for(&mut self.list, Some(Duration::ZERO))? > 0
            } else {
                sleep_on(&self.wake, &mut self.list, deadline)?
            };
            ready = ready.saturating_add(self.sockets.take_ordinary(entries, &self.list));
            if ready > 0 || !happened {
                return Ok(ready);
            }
            let ready = self.acknowledge(entries);
            if ready > 0 {
                return Ok(ready);
            }
        }
    }

    /// Takes the notifications that ended a sleep, and looks at the sockets
    /// they came from; returns how many of them report something.
    fn acknowledge(&mut self, entries: &mut [pollfd]) -> usize {
        let woken = self.list.get(WAKE).is_some_and(|entry| entry.revents != 0);
        if woken {
            self.wake.clear();
        }
        // Nobody tells of changes who cannot wake.
        let woken = woken || !self.wake.works();
        let mut ready = 0;
        let channels = self.list.iter().skip(CHANNELS);
        for (polled, channel) in self.sockets.list.iter_mut().zip(channels) {
            let notified = channel.revents != 0;
            if notified && let Some(notifier) = polled.socket.notifier() {
                notifier.take_notification();
            }
            let look = notified || woken && polled.has_changed();
            ready += usize::from(look && polled.check(entries));
        }
        ready
    }
}

/// The sets of `select(2)`: wanted and, afterwards, readable, writable and in an
/// exceptional condition. A bit per descriptor; those that are absent are empty.
#[derive(Debug, Default)]
pub struct Sets(pub [Vec<u64>; 3]);

/// What each set asks for, and what of a report answers that.
const ASKED: [(i16, i16); 3] = [
    (
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    ),
    (
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
    ),
    (libc::POLLPRI, libc::POLLPRI),
];

const BITS: usize = u64::BITS as usize;

fn has(set: &[u64], fd: usize) -> bool {
    set.get(fd / BITS)
        .is_some_and(|word| word >> (fd % BITS) & 1 != 0)
}

impl Sets {
    /// What is asked of the descriptors below `count`.
    fn entries(&self, count: usize) -> Vec<pollfd> {
        let entries = (0..count).filter_map(|fd| {
            let asked = self.0.iter().zip(ASKED);
            let events = asked
                .filter(|(set, _)| has(set, fd))
                .fold(0, |events, (_, (wanted, _))| events | wanted);
            (events != 0).then(|| pollfd {
                fd: i32::try_from(fd).unwrap_or(-1),
                events,
                revents: 0,
            })
        });
        entries.collect()
    }

    /// Whether what an entry reports is what a set asks for, or an error.
    fn answered_by(&self, entry: &pollfd) -> bool {
        let Ok(fd) = usize::try_from(entry.fd) else {
            return false;
        };
        let mut asked = self.0.iter().zip(ASKED);
        entry.revents & libc::POLLNVAL != 0
            || asked.any(|(set, (_, answer))| has(set, fd) && entry.revents & answer != 0)
    }

    /// Leaves in the sets what was reported, and counts that.
    fn answer(&mut self, entries: &[pollfd]) -> usize {
        let mut bits = 0;
        for (set, (_, answer)) in self.0.iter_mut().zip(ASKED) {
            let mut left = vec![0; set.len()];
            for entry in entries.iter().filter(|entry| entry.revents & answer != 0) {
                let fd = usize::try_from(entry.fd).unwrap_or(usize::MAX);
                if has(set, fd)
                    && let Some(word) = left.get_mut(fd / BITS)
                {
                    *word |= 1 << (fd % BITS);
                    bits += 1;
                }
            }
            *set = left;
        }
        bits
    }
}

/// `select(2)` of the descriptors below `count`. Returns what is left of the sets,
/// and the number of bits in them.
///
/// # Errors
/// `EBADF` if a set names a descriptor that is not open, `EINTR`, `ENOMEM`.
pub fn select(count: usize, sets: Sets, timeout: Option<Duration>) -> Result<(usize, Sets)> {
    let entries = sets.entries(count);
    holding((sets, entries), |(sets, entries)| {
        let bits = select_of(sets, entries, timeout)?;
        Ok((bits, std::mem::take(sets)))
    })
}

/// As [`select`], of these entries.
fn select_of(sets: &mut Sets, entries: &mut [pollfd], timeout: Option<Duration>) -> Result<usize> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ready = poll(entries, left)?;
        if ready == 0 || entries.iter().any(|entry| sets.answered_by(entry)) {
            break;
        }
        // A hang-up alone is no event for one who does not read; the wait
        // goes on without that descriptor.
        for entry in entries.iter_mut().filter(|entry| entry.revents != 0) {
            entry.fd = -1;
        }
    }
    let invalid = |entry: &pollfd| entry.revents & libc::POLLNVAL != 0;
    if entries.iter().any(invalid) {
        return Err(Error::new(libc::EBADF, "select a descriptor"));
    }
    Ok(sets.answer(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Write, pipe};

    #[test]
    fn ordinary_descriptors_are_left_to_the_kernel() {
        let (reader, mut writer) = pipe().unwrap();
        let mut entries = [readable(reader.as_raw_fd())];
        let started = Instant::now();
        let timeout = Duration::from_millis(30);
        assert_eq!(poll(&mut entries, Some(timeout)), Ok(0));
        assert!(started.elapsed() >= timeout);
        writer.write_all(b"x").unwrap();
        assert_eq!(poll(&mut entries, None), Ok(1));
    }

    #[test]
    fn sockets_that_are_closed_before_they_are_kept_are_reported() {
        // Descriptors that were sockets at the first look, and are none now.
        let mut entries = [readable(0), readable(1)];
        let mut sockets = Sockets::find(&entries);
        assert_eq!(sockets.report_closed(&mut entries), 2);
        assert!(entries.iter().all(|entry| entry.revents == libc::POLLNVAL));
    }

    #[test]
    fn select_reports_what_was_asked_for() {
        let (reader, mut writer) = pipe().unwrap();
        let (read_fd, write_fd) = (reader.as_raw_fd() as usize, writer.as_raw_fd() as usize);
        let set = |fd: usize| {
            let mut set = vec![0u64; 16];
            set[fd / 64] |= 1 << (fd % 64);
            set
        };
        writer.write_all(b"x").unwrap();
        let sets = || Sets([set(read_fd), set(write_fd), set(read_fd)]);
        let (bits, left) = select(1024, sets(), None).unwrap();
        assert_eq!(bits, 2);
        assert_eq!(left.0, [set(read_fd), set(write_fd), vec![0; 16]]);
        let absent = Sets([set(read_fd), Vec::new(), Vec::new()]);
        let (bits, left) = select(1024, absent, None).unwrap();
        assert_eq!((bits, left.0), (1, [set(read_fd), Vec::new(), Vec::new()]));
        drop(reader);
        drop(writer);
    }
}
