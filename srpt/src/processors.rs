//! Which processor the thread of a channel runs on. Knows no channels, only
//! their numbers.
//!
//! The kernel's target handles a completion on the processor that it arrives
//! at. Threads left to the scheduler are woken on another one that is idle
//! instead, and wait until that one has woken up: for a single small command
//! this takes longer than all the rest of it. So each channel's thread keeps to
//! one processor, in turns, as an initiator with a channel per processor
//! expects.

use std::io;
use std::mem::{self, MaybeUninit};

/// The processors that threads take turns on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors(Vec<usize>);

impl Processors {
    /// None: the scheduler decides.
    pub const fn any() -> Self {
        Self(Vec::new())
    }

    /// All that the calling thread may use; none if the kernel does not say.
    pub fn allowed() -> Self {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: the kernel writes at most so many bytes to the set, for which
        // zeros are valid.
        let set = unsafe {
            let size = mem::size_of::<libc::cpu_set_t>();
            if libc::sched_getaffinity(0, size, set.as_mut_ptr()) != 0 {
                return Self::any();
            }
            set.assume_init()
        };
        let room = libc::CPU_SETSIZE as usize;
        // SAFETY: the number is below CPU_SETSIZE.
        let allowed = (0..room).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
        Self(allowed.collect())
    }

    /// The processor whose turn it is for channel `number`, which counts from 1.
    fn of(&self, number: u64) -> Option<usize> {
        let turn = number.saturating_sub(1).checked_rem(self.0.len() as u64)?;
        self.0.get(turn as usize).copied()
    }

    /// Has the calling thread run where it is the turn of channel `number`.
    ///
    /// # Errors
    /// As sched_setaffinity(2), for instance if the process may not use the
    /// processor any more. The thread then runs wherever it did.
    pub fn bind(&self, number: u64) -> io::Result<()> {
        let Some(cpu) = self.of(number) else {
            return Ok(());
        };
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: zeros are a valid set; numbers in here are below CPU_SETSIZE;
        // the kernel reads so many bytes.
        let status = unsafe {
            libc::CPU_SET(cpu, set.assume_init_mut());
            libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), set.as_ptr())
        };
        match status {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_take_turns() {
        let processors = Processors(vec![2, 5]);
        let turns = (1..5).map(|number| processors.of(number));
        assert!(turns.eq([2, 5, 2, 5].map(Some)));
        assert_eq!(Processors::any().of(1), None);
    }

    #[test]
    fn a_bound_thread_keeps_to_its_processor() {
        let all = Processors::allowed();
        assert!(!all.0.is_empty());
        let bind = |processors: Processors| {
            let bound = std::thread::spawn(move || {
                processors.bind(1).unwrap();
                Processors::allowed()
            });
            bound.join().unwrap()
        };
        assert_eq!(bind(all.clone()), Processors(vec![all.0[0]]));
        assert_eq!(bind(Processors::any()), all);
    }
}
