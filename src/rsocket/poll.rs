//! Waiting for events on any mixture of sockets over RDMA and ordinary
//! descriptors: `rpoll` and `rselect`.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use libc::pollfd;

use crate::error::{Error, Result};

use super::settings::Defaults;
use super::socket::Socket;
use super::sockets;

use super::wait::{Notifier, Wake, readable, sleep};

/// Entries of the list before those of ordinary descriptors and sockets.
const WAKE: usize = 0;

/// The sockets among the descriptors of a call, by their place in it.
struct Sockets {
    list: Vec<(usize, Socket)>,
    total: usize,
}

impl Sockets {
    fn find(entries: &[pollfd]) -> Self {
        let list = entries
            .iter()
            .enumerate()
            .filter_map(|(place, entry)| Some((place, sockets::find(entry.fd)?)))
            .collect();
        Self {
            list,
            total: entries.len(),
        }
    }

    /// What each socket reports; returns how many have something to report.
    fn check(&self, entries: &mut [pollfd]) -> usize {
        let mut ready = 0;
        for (place, socket) in &self.list {
            if let Some(entry) = entries.get_mut(*place) {
                entry.revents = if socket.is_closed() {
                    libc::POLLNVAL
                } else {
                    socket.poll(entry.events)
                };
                ready += usize::from(entry.revents != 0);
            }
        }
        ready
    }

    fn all_are_sockets(&self) -> bool {
        self.list.len() == self.total
    }
}

/// `poll(2)`; `timeout` of `None` means no limit. Returns the number of
/// entries with something to report.
///
/// # Errors
/// `EINTR`, `EINVAL` for too many entries, `ENOMEM`.
pub fn poll(entries: &mut [pollfd], timeout: Option<Duration>) -> Result<usize> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let sockets = Sockets::find(entries);
    if sockets.list.is_empty() {
        return sleep(entries, deadline);
    }
    let now = Some(Instant::now());
    let look = |entries: &mut [pollfd]| -> Result<usize> {
        let ready = sockets.check(entries);
        if sockets.all_are_sockets() {
            return Ok(ready);
        }
        Ok(ready.saturating_add(sockets.poll_ordinary(entries, now)?))
    };
    let spinning = Instant::now();
    let polling_time = Defaults::get().polling_time;
    loop {
        let ready = look(entries)?;
        if ready > 0 || timeout == Some(Duration::ZERO) {
            return Ok(ready);
        }
        if spinning.elapsed() >= polling_time {
            break;
        }
    }
    sockets.sleep(entries, deadline)
}

impl Sockets {
    /// Fills in the ordinary descriptors without waiting.
    fn poll_ordinary(&self, entries: &mut [pollfd], now: Option<Instant>) -> Result<usize> {
        let mut list = self.sleep_list(entries, None);
        sleep(&mut list, now)?;
        Ok(Self::take_ordinary(&self.list, entries, &list))
    }

    /// What the kernel is asked: the thread's wake-up, every ordinary
    /// descriptor in the place of its entry, and the completion channels of
    /// the sockets behind them.
    fn sleep_list(&self, entries: &[pollfd], wake: Option<&Wake>) -> Vec<pollfd> {
        let mut list = Vec::with_capacity(entries.len().saturating_mul(2).saturating_add(1));
        list.push(readable(wake.map_or(-1, AsRawFd::as_raw_fd)));
        list.extend_from_slice(entries);
        for (place, _) in &self.list {
            if let Some(entry) = list.get_mut(place.saturating_add(1)) {
                entry.fd = -1;
            }
        }
        if wake.is_some() {
            list.extend(self.list.iter().map(|(_, socket)| {
                readable(socket.notifier().map_or(-1, Notifier::notification_fd))
            }));
        }
        list
    }

    /// Copies what the kernel said of ordinary descriptors.
    fn take_ordinary(
        sockets: &[(usize, Socket)],
        entries: &mut [pollfd],
        list: &[pollfd],
    ) -> usize {
        let mut ready = 0;
        let mut sockets = sockets.iter().map(|(place, _)| *place).peekable();
        for (place, (entry, slept)) in entries.iter_mut().zip(list.iter().skip(1)).enumerate() {
            if sockets.next_if_eq(&place).is_some() {
                continue;
            }
            entry.revents = slept.revents;
            ready += usize::from(entry.revents != 0);
        }
        ready
    }

    fn sleep(&self, entries: &mut [pollfd], deadline: Option<Instant>) -> Result<usize> {
        let wake = Wake::of_thread()?;
        let _registered: Vec<_> = self
            .list
            .iter()
            .map(|(_, socket)| socket.waiters().register(&wake))
            .collect();
        loop {
            for (_, socket) in &self.list {
                if let Some(notifier) = socket.notifier() {
                    notifier.arm()?;
                }
            }
            let ready = self.check(entries);
            let mut list = self.sleep_list(entries, Some(&wake));
            let until = if ready > 0 {
                Some(Instant::now())
            } else {
                deadline
            };
            let happened = sleep(&mut list, until)?;
            let ordinary = Self::take_ordinary(&self.list, entries, &list);
            let ready = ready.saturating_add(ordinary);
            if ready > 0 || happened == 0 {
                return Ok(ready);
            }
            self.acknowledge(&list, &wake);
            let ready = self.check(entries);
            if ready > 0 {
                return Ok(ready);
            }
        }
    }

    /// Takes the notifications that ended a sleep.
    fn acknowledge(&self, list: &[pollfd], wake: &Wake) {
        if list.get(WAKE).is_some_and(|entry| entry.revents != 0) {
            wake.clear();
        }
        let channels = list.iter().skip(self.total.saturating_add(1));
        for ((_, socket), entry) in self.list.iter().zip(channels) {
            if entry.revents != 0
                && let Some(notifier) = socket.notifier()
            {
                notifier.take_notification();
            }
        }
    }
}

/// The sets of `select(2)`, each a bit per descriptor; those that are absent
/// are empty.
pub struct Sets<'a> {
    /// Wanted and, afterwards, readable.
    pub read: Option<&'a mut [u64]>,
    /// Wanted and, afterwards, writable.
    pub write: Option<&'a mut [u64]>,
    /// Wanted and, afterwards, in an exceptional condition.
    pub except: Option<&'a mut [u64]>,
}

const READ: i16 =
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR;
const EXCEPT: i16 = libc::POLLPRI;

fn has(set: &Option<&mut [u64]>, fd: usize) -> bool {
    set.as_ref()
        .and_then(|set| set.get(fd / 64))
        .is_some_and(|word| word >> (fd % 64) & 1 != 0)
}

fn put(set: &mut Option<&mut [u64]>, fd: usize, on: bool) {
    if let Some(word) = set.as_mut().and_then(|set| set.get_mut(fd / 64)) {
        let bit = 1u64 << (fd % 64);
        *word = if on { *word | bit } else { *word & !bit };
    }
}

/// Whether what an entry reports is what a set asks for, or an error.
fn asked(sets: &Sets<'_>, entry: &pollfd) -> bool {
    let Ok(fd) = usize::try_from(entry.fd) else {
        return false;
    };
    let reports = |set: &Option<&mut [u64]>, mask| has(set, fd) && entry.revents & mask != 0;
    entry.revents & libc::POLLNVAL != 0
        || reports(&sets.read, READ)
        || reports(&sets.write, WRITE)
        || reports(&sets.except, EXCEPT)
}

/// `select(2)` of the descriptors below `count`. The sets change only on
/// success. Returns the number of bits that are set afterwards.
///
/// # Errors
/// `EBADF` if a set names a descriptor that is not open, `EINTR`, `ENOMEM`.
pub fn select(count: usize, sets: &mut Sets<'_>, timeout: Option<Duration>) -> Result<usize> {
    let mut entries = Vec::new();
    for fd in 0..count {
        let mut events = 0;
        for (set, wanted) in [
            (
                &sets.read,
                libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
            ),
            (
                &sets.write,
                libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
            ),
            (&sets.except, libc::POLLPRI),
        ] {
            if has(set, fd) {
                events |= wanted;
            }
        }
        if events != 0 {
            entries.push(pollfd {
                fd: i32::try_from(fd).unwrap_or(-1),
                events,
                revents: 0,
            });
        }
    }
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ready = poll(&mut entries, left)?;
        if ready == 0 || entries.iter().any(|entry| asked(sets, entry)) {
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
    let mut bits = 0;
    let mut reports = entries.iter().filter(|entry| entry.fd >= 0).peekable();
    for fd in 0..count {
        let own = reports.next_if(|entry| usize::try_from(entry.fd) == Ok(fd));
        let revents = own.map_or(0, |entry| entry.revents);
        for (set, mask) in [
            (&mut sets.read, READ),
            (&mut sets.write, WRITE),
            (&mut sets.except, EXCEPT),
        ] {
            if has(set, fd) {
                let on = revents & mask != 0;
                put(set, fd, on);
                bits += usize::from(on);
            }
        }
    }
    Ok(bits)
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
    fn select_reports_what_was_asked_for() {
        let (reader, mut writer) = pipe().unwrap();
        let (read_fd, write_fd) = (reader.as_raw_fd() as usize, writer.as_raw_fd() as usize);
        let mut read = [0u64; 16];
        let mut write = [0u64; 16];
        read[read_fd / 64] |= 1 << (read_fd % 64);
        write[write_fd / 64] |= 1 << (write_fd % 64);
        writer.write_all(b"x").unwrap();
        let mut sets = Sets {
            read: Some(&mut read),
            write: Some(&mut write),
            except: None,
        };
        assert_eq!(select(1024, &mut sets, None), Ok(2));
        drop(reader);
        drop(writer);
    }
}
