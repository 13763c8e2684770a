//! `select` and its variant for sets of which some descriptors are sockets over
//! RDMA. Without any they are the kernel's.

use std::ffi::{c_int, c_ulong};
use std::ptr;
use std::time::Duration;

use libc::{fd_set, pollfd, sigset_t, timespec, timeval};

use crate::next::fail;
use crate::poll::wait;
use crate::waiting::{Deadline, limit, with_mask};
use crate::{fork, memory, next};

/// What each of the three sets asks for, and what of a report answers that.
const SETS: [(i16, i16); 3] = [
    (
        libc::POLLIN | libc::POLLRDNORM,
        libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
    ),
    (
        libc::POLLOUT | libc::POLLWRNORM,
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
    ),
    (libc::POLLPRI, libc::POLLPRI),
];

/// The three sets of a `select`, as words of bits; absent ones are empty.
struct Sets([Vec<c_ulong>; 3]);

const BITS: usize = c_ulong::BITS as usize;

/// As much of `count` as the kernel looks at: it stops where the table of the
/// process's descriptors ends, and so programs pass any number, above the size
/// of their sets.
fn within_table(count: c_int) -> c_int {
    if usize::try_from(count).is_ok_and(|count| count <= libc::FD_SETSIZE) {
        return count;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    let size = size.and_then(|size| size.trim().parse().ok());
    count.min(size.unwrap_or(libc::FD_SETSIZE as c_int))
}

impl Sets {
    /// The sets of a call, if one of the descriptors below `count` is a socket
    /// over RDMA. `count` is [`within_table`].
    ///
    /// # Errors
    /// `EFAULT` if a set is no memory.
    ///
    /// # Safety
    /// Each pointer is null or points to a set that holds `count` descriptors,
    /// or to no memory.
    unsafe fn over_rdma(count: c_int, sets: [*mut fd_set; 3]) -> Result<Option<Self>, c_int> {
        if !fork::may_find() {
            return Ok(None);
        }
        let words = usize::try_from(count).unwrap_or(0).div_ceil(BITS);
        let mut copies = sets.map(|set| vec![0; if set.is_null() { 0 } else { words }]);
        for (copy, set) in copies.iter_mut().zip(sets) {
            // SAFETY: the caller vouches for it.
            unsafe { memory::read(set.cast_const().cast(), copy) }?;
        }
        let sets = Self(copies);
        let found =
            (0..count).filter(|fd| sets.asked(*fd) != 0 && fork::find_to_wait(*fd).is_some());
        Ok((found.count() > 0).then_some(sets))
    }

    /// Copies the sets to those of the program.
    ///
    /// # Errors
    /// `EFAULT` if one is no memory that may be written.
    ///
    /// # Safety
    /// The sets that they were made from.
    unsafe fn give_back(&self, sets: [*mut fd_set; 3]) -> Result<(), c_int> {
        for (copy, set) in self.0.iter().zip(sets) {
            // SAFETY: the caller vouches for it; absent ones are empty here.
            unsafe { memory::write(set.cast(), copy) }?;
        }
        Ok(())
    }

    fn has(set: &[c_ulong], fd: usize) -> bool {
        set.get(fd / BITS)
            .is_some_and(|word| word >> (fd % BITS) & 1 != 0)
    }

    /// What the sets ask of a descriptor.
    fn asked(&self, fd: c_int) -> i16 {
        let fd = usize::try_from(fd).unwrap_or(usize::MAX);
        let asked = self.0.iter().zip(SETS);
        asked
            .filter(|(set, _)| Self::has(set, fd))
            .fold(0, |events, (_, (wanted, _))| events | wanted)
    }

    /// Whether a report answers what the sets ask for.
    fn answers(&self, entry: &pollfd) -> bool {
        let fd = usize::try_from(entry.fd).unwrap_or(usize::MAX);
        let mut asked = self.0.iter().zip(SETS);
        asked.any(|(set, (_, answer))| Self::has(set, fd) && entry.revents & answer != 0)
    }

    /// Leaves in the sets what was reported, and counts that.
    fn answer(&mut self, entries: &[pollfd]) -> c_int {
        let mut bits = 0;
        for (set, (_, answer)) in self.0.iter_mut().zip(SETS) {
            let asked = entries.iter().filter(|entry| {
                usize::try_from(entry.fd).is_ok_and(|fd| Self::has(set, fd))
                    && entry.revents & answer != 0
            });
            let ready: Vec<_> = asked
                .filter_map(|entry| usize::try_from(entry.fd).ok())
                .collect();
            set.fill(0);
            for fd in ready {
                if let Some(word) = set.get_mut(fd / BITS) {
                    *word |= 1 << (fd % BITS);
                    bits += 1;
                }
            }
        }
        bits
    }
}

fn select_over_rdma(count: c_int, sets: &mut Sets, deadline: &Deadline) -> c_int {
    let entries = (0..count).filter_map(|fd| {
        let events = sets.asked(fd);
        (events != 0).then_some(pollfd {
            fd,
            events,
            revents: 0,
        })
    });
    let mut entries: Vec<_> = entries.collect();
    loop {
        let ready = wait(&mut entries, deadline);
        if ready < 0 {
            return ready;
        }
        if entries
            .iter()
            .any(|entry| entry.revents & libc::POLLNVAL != 0)
        {
            return fail(libc::EBADF);
        }
        if ready == 0 || entries.iter().any(|entry| sets.answers(entry)) {
            return sets.answer(&entries);
        }
        // What is reported though nobody asked would be reported for ever.
        entries.retain(|entry| entry.revents == 0);
    }
}

/// A `select` over sets of which `limit` says how long it may take; `left` is told
/// how much of that is left. `None` if it is the kernel's.
///
/// # Safety
/// As for `select(2)`, but the sets may be no memory.
unsafe fn select_sets(
    count: c_int,
    sets: [*mut fd_set; 3],
    limit: impl FnOnce() -> Result<Option<Duration>, c_int>,
    mask: *const sigset_t,
    left: impl FnOnce(&Deadline),
) -> Option<c_int> {
    let known = within_table(count);
    // SAFETY: the caller's sets.
    let mut copies = match unsafe { Sets::over_rdma(known, sets) } {
        Ok(copies) => copies?,
        Err(errno) => return Some(fail(errno)),
    };
    let deadline = match limit() {
        Ok(limit) => Deadline::after(limit),
        Err(errno) => return Some(fail(errno)),
    };
    // SAFETY: the caller's mask.
    let ready = unsafe { with_mask(mask, || select_over_rdma(known, &mut copies, &deadline)) };
    left(&deadline);
    if ready >= 0 {
        // SAFETY: the caller's sets.
        if let Err(errno) = unsafe { copies.give_back(sets) } {
            return Some(fail(errno));
        }
    }
    Some(ready)
}

/// A time as a duration, in which Linux takes any number of microseconds.
///
/// # Errors
/// `EINVAL` if it is negative.
fn duration_of(time: timeval) -> Result<Duration, c_int> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    let micros = u64::try_from(time.tv_usec).map_err(|_| libc::EINVAL)?;
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
}

/// `select(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let limit = || {
        // SAFETY: the caller's time.
        let time = unsafe { memory::read_one(timeout.cast_const()) }?;
        time.map(duration_of).transpose()
    };
    // What is left is told as Linux does it, even if a signal ends the call.
    let left = |deadline: &Deadline| {
        if let Some(left) = deadline.left_exactly() {
            let left = timeval {
                tv_sec: left.tv_sec,
                tv_usec: left.tv_nsec / 1000,
            };
            let errno = next::errno();
            // SAFETY: the caller's time; one that is only read stays as it is.
            let _ = unsafe { memory::write(timeout, &[left]) };
            next::set_errno(errno);
        }
    };
    // SAFETY: the caller's sets.
    unsafe { select_sets(count, [read, write, except], limit, ptr::null(), left) }
        // SAFETY: the caller's arguments.
        .unwrap_or_else(|| unsafe { next::select(count, read, write, except, timeout) })
}

/// `pselect(2)`. With a socket over RDMA, the mask is set before and after the
/// wait.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's time.
    let time = || unsafe { limit(timeout) };
    // SAFETY: the caller's sets and mask.
    unsafe { select_sets(count, [read, write, except], time, mask, |_| ()) }
        // SAFETY: the caller's arguments.
        .unwrap_or_else(|| unsafe { next::pselect(count, read, write, except, timeout, mask) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_may_be_smaller_than_the_number_of_descriptors_given() {
        assert_eq!(within_table(-1), -1);
        assert_eq!(within_table(5), 5);
        // SAFETY: plain data.
        let mut set: fd_set = unsafe { std::mem::zeroed() };
        let sets: [*mut fd_set; 3] = [&mut set, ptr::null_mut(), ptr::null_mut()];
        let mut now = timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        for count in [libc::FD_SETSIZE as c_int + 1, c_int::MAX] {
            let known = within_table(count);
            assert!(known < count, "{known}");
            // SAFETY: this process has fewer descriptors than the set holds.
            let ready = unsafe { select(count, sets[0], sets[1], sets[2], &mut now) };
            assert_eq!(ready, 0);
        }
    }

    #[test]
    fn sets_keep_what_was_asked_for_and_reported() {
        let (read, write) = (vec![1 << 3 | 1 << 5, 0], vec![0, 1 << 6]);
        let mut sets = Sets([read, write, Vec::new()]);
        assert_eq!(sets.asked(4), 0);
        assert_eq!(sets.asked(70), libc::POLLOUT | libc::POLLWRNORM);
        let report = |fd, revents| pollfd {
            fd,
            events: 0,
            revents,
        };
        assert!(!sets.answers(&report(70, libc::POLLHUP)));
        let reports = [
            report(3, libc::POLLHUP),
            report(5, 0),
            report(70, libc::POLLERR),
        ];
        assert_eq!(sets.answer(&reports), 2);
        assert_eq!(sets.0, [vec![1 << 3, 0], vec![0, 1 << 6], Vec::new()]);
    }
}
