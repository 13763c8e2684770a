//! Waiting for events on any mixture of sockets over RDMA and ordinary
//! descriptors: `rpoll`.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::pollfd;

use crate::cancel::{Uncancelled, holding};
use crate::error::Result;

use super::looking::Wait;
use super::socket::Socket;
use super::sockets;
use super::table::Found;
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
    /// Places of those that are being closed.
    closing: Vec<usize>,
    total: usize,
}

/// `poll(2)`; `timeout` of `None` means no limit. Returns the number of
/// entries with something to report.
///
/// # Errors
/// `EINTR`, `EINVAL` for too many entries, `ENOMEM`.
#[inline(always)] // as for `glance`
pub fn poll(entries: &mut [pollfd], timeout: Option<Duration>) -> Result<usize> {
    let (found, ready) = glance(entries);
    let sockets_only = found > 0 && found == entries.len();
    if sockets_only && (ready > 0 || timeout == Some(Duration::ZERO)) {
        return Ok(ready);
    }
    poll_further(entries, timeout, found, ready)
}

/// As [`poll`], when the first look has found so many sockets and so many to report,
/// and that is not all.
#[inline(never)] // as it would make the first look longer
fn poll_further(
    entries: &mut [pollfd],
    timeout: Option<Duration>,
    found: usize,
    ready: usize,
) -> Result<usize> {
    if found == 0 {
        return sleep_for(entries, timeout);
    }
    let sockets_only = found == entries.len();
    let at_once = timeout == Some(Duration::ZERO);
    let _uncancelled = Uncancelled::but_in_sleeps();
    let mut sockets = Sockets::find(entries);
    if ready > 0 || at_once || !sockets.closing.is_empty() {
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

/// One look at the sockets, without keeping them. Returns how many there are, with
/// those that are being closed, and how many of them report something.
#[inline(always)] // a call less for each look of a program that only looks
fn glance(entries: &mut [pollfd]) -> (usize, usize) {
    let (mut found, mut ready) = (0, 0);
    for entry in entries {
        let events = entry.events;
        entry.revents = match sockets::look_up(entry.fd, |socket| look(socket, events)) {
            Found::Own(reported) => reported,
            Found::Closing => libc::POLLNVAL,
            Found::Nothing => continue,
        };
        found += 1;
        ready += usize::from(entry.revents != 0);
    }
    (found, ready)
}

impl Sockets {
    fn find(entries: &[pollfd]) -> Self {
        let mut closing = Vec::new();
        let list = entries.iter().enumerate().filter_map(|(place, entry)| {
            let socket = match sockets::look_up(entry.fd, Socket::clone) {
                Found::Own(socket) => socket,
                Found::Closing => {
                    closing.push(place);
                    return None;
                }
                Found::Nothing => return None,
            };
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
            closing,
            total: entries.len(),
        }
    }

    /// What every entry reports now; returns how many report something.
    fn look(&mut self, entries: &mut [pollfd]) -> Result<usize> {
        let ready = self.check_all(entries);
        if self.list.len().saturating_add(self.closing.len()) == self.total {
            return Ok(ready);
        }
        let mut list = self.kernel_list(entries, None);
        sleep_for(&mut list, Some(Duration::ZERO))?;
        Ok(ready.saturating_add(self.take_ordinary(entries, &list)))
    }

    fn check_all(&mut self, entries: &mut [pollfd]) -> usize {
        for place in &self.closing {
            if let Some(entry) = entries.get_mut(*place) {
                entry.revents = libc::POLLNVAL;
            }
        }
        let ready = self.list.iter_mut().map(|polled| polled.check(entries));
        let ready: usize = ready.map(usize::from).sum();
        ready.saturating_add(self.closing.len())
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
            .filter(|(place, _)| self.closing.binary_search(place).is_err())
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
    fn sockets_that_are_being_closed_are_none_and_no_ordinary_descriptors() {
        let create = || sockets::create(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        let (fd, other) = (create(), create());
        // Another thread is still in a call on it.
        let used = sockets::any(fd).unwrap();
        sockets::close(fd).unwrap();
        let (reader, _writer) = pipe().unwrap();
        let beside = [other, reader.as_raw_fd()];
        for beside in [&beside[..0], &beside[..1], &beside[1..], &beside] {
            let mut entries = vec![readable(fd)];
            entries.extend(beside.iter().map(|fd| readable(*fd)));
            assert_eq!(poll(&mut entries, None), Ok(1));
            assert_eq!(entries[0].revents, libc::POLLNVAL);
            // Closed since the first look.
            entries[0].revents = 0;
            assert_eq!(Sockets::find(&entries).look(&mut entries), Ok(1));
            assert_eq!(entries[0].revents, libc::POLLNVAL);
        }
        drop(used);
        sockets::close(other).unwrap();
    }
}
