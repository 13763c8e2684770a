//! `rselect`, by way of [`poll`].

use std::time::{Duration, Instant};

use libc::pollfd;

use crate::cancel::holding;
use crate::error::{Error, Result};

use super::poll::poll;

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
    use std::os::fd::AsRawFd;

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
