//! Handing a command to the kernel.
//!
//! A command is one `write(2)` to the connection manager's character device:
//! an eight-byte header (number, length of the command, room for the reply)
//! followed by the command, which carries the address where the kernel puts
//! the reply. [`submit`] and its sibling for replies of variable length are
//! the only way through which the crate does that. Which commands exist is
//! said in [`super::ucma`].

use std::ffi::c_void;
use std::mem::size_of;
use std::os::fd::RawFd;

use crate::cancel::Uncancelled;
use crate::error::{Error, Result};

use super::plain::{Plain, wire};

/// A command of the connection manager's character device.
///
/// Implementors are the command's bytes after the header.
///
/// # Safety
///
/// On this command the kernel writes nowhere but to the address last given to
/// [`Command::set_response`], and no more than a `Reply` (or the room stated
/// in the header).
pub unsafe trait Command: Plain {
    /// The number of the command.
    const NUMBER: u32;
    /// The command in words, for errors and logs.
    const STEP: &'static str;
    /// Whether the command waits for what may never come. A signal ends it with
    /// `EINTR` then, and pthread_cancel(3) ends the thread in it; any other is
    /// given again after a signal, which is sound since the kernel has done
    /// nothing of it by then, and is no cancellation point, lest a thread end
    /// with half of a call done.
    const WAITS: bool = false;
    /// What the kernel answers; `()` for nothing.
    type Reply: Reply;

    /// Stores the address to which the kernel writes the reply. Called by the
    /// submitting functions only, on their own copy of the command. Commands
    /// with a reply must implement it.
    fn set_response(&mut self, _address: u64) {}
}

/// The reply to a command.
pub trait Reply: Plain {
    /// The value before the kernel writes to it: what its fields mean when the
    /// kernel is too old to know them.
    fn preset() -> Self {
        Self::zeroed()
    }

    /// The reply that consists of `bytes` written by a kernel over
    /// [`Reply::preset`].
    fn from_kernel(bytes: &[u8]) -> Self {
        let mut reply = Self::preset();
        reply.overlay(bytes);
        reply
    }

    /// Whether the reply is still as [`Reply::preset`], in a field to which the
    /// kernel gives another value: whoever took the command is no connection
    /// manager.
    fn is_missing(&self) -> bool {
        false
    }
}

impl Reply for () {}

wire! {
    /// Envelope of every command.
    struct Header: 8 {
        number: u32 = 0,
        command_len: u16 = 4,
        reply_len: u16 = 6,
    }
}

/// Header and command as the kernel reads them.
#[repr(C)]
struct Packet<C> {
    header: Header,
    command: C,
}

/// Hands `command` to the kernel through the descriptor `fd` and returns the
/// reply.
///
/// `fd` is a number and not a borrowed descriptor, since it comes from a
/// structure that programs may change or close at any time; a descriptor that
/// is not open fails with `EBADF`, and so does another file that takes the
/// command, if there is a reply to miss ([`Reply::is_missing`]).
///
/// Blocks as long as the kernel does: `GET_EVENT` until there is an event
/// (unless the descriptor is non-blocking), `DESTROY_ID`, `MIGRATE_ID` and
/// `LEAVE_MCAST` until running kernel callbacks have finished, every other
/// command briefly. May be called from any number of threads at once.
///
/// # Errors
///
/// The kernel's errno; `EINTR` only from commands that a signal ends
/// ([`Command::WAITS`]), any other is given again.
/// `ENODATA` when the kernel took fewer bytes than the command has.
pub fn submit<C: Command>(fd: RawFd, command: C) -> Result<C::Reply> {
    let mut reply = C::Reply::preset();
    submit_into(fd, command, &mut reply)?;
    Ok(reply)
}

/// As [`submit`], for a long reply: the kernel writes it over `reply`, which
/// must be [`Reply::preset`].
///
/// # Errors
///
/// As [`submit`].
pub fn submit_into<C: Command>(fd: RawFd, command: C, reply: &mut C::Reply) -> Result<()> {
    let room = size_of::<C::Reply>();
    // SAFETY: `reply` is exclusively ours, `room` bytes long, and plain, so
    // whatever the kernel writes there is a valid value.
    unsafe { write_command(fd, command, (&raw mut *reply).cast(), room)? };
    if reply.is_missing() {
        return Err(Error::new(libc::EBADF, C::STEP));
    }
    Ok(())
}

/// As [`submit`], for a command whose reply is a `C::Reply` followed by an
/// array of `T`; the kernel fills as much of `records` as it has.
///
/// # Errors
///
/// As [`submit`], and `EINVAL` when the reply would be larger than the 65 535
/// bytes that the command header can express.
pub(super) fn submit_with_records<C: Command, T: Plain>(
    fd: RawFd,
    command: C,
    capacity: usize,
) -> Result<(C::Reply, Vec<T>)> {
    let head_len = size_of::<C::Reply>();
    let room = capacity
        .checked_mul(size_of::<T>())
        .and_then(|len| len.checked_add(head_len))
        .ok_or(Error::invalid(C::STEP))?;
    let mut buffer = C::Reply::preset().as_bytes().to_vec();
    buffer.resize(room, 0);
    // SAFETY: the buffer has `room` bytes, is exclusively ours, and any bytes
    // are valid in it.
    unsafe { write_command(fd, command, buffer.as_mut_ptr(), room)? };
    let records = buffer.get(head_len..).unwrap_or_default();
    let records = records.chunks_exact(size_of::<T>());
    Ok((
        C::Reply::from_prefix(&buffer),
        records.map(T::from_prefix).collect(),
    ))
}

/// Writes one command. The only place in the crate that does.
///
/// # Safety
///
/// `reply` must be valid for writes of `room` bytes, nobody else may access
/// them during the call, and any bytes must be valid there.
unsafe fn write_command<C: Command>(
    fd: RawFd,
    mut command: C,
    reply: *mut u8,
    room: usize,
) -> Result<()> {
    let too_long = |_| Error::invalid(C::STEP);
    if room > 0 {
        // The kernel writes through the address behind the compiler's back.
        command.set_response(reply.expose_provenance() as u64);
    }
    let packet = Packet {
        header: Header {
            number: C::NUMBER,
            command_len: u16::try_from(size_of::<C>()).map_err(too_long)?,
            reply_len: u16::try_from(room).map_err(too_long)?,
        },
        command,
    };
    let len = const {
        assert!(size_of::<Packet<C>>() == size_of::<Header>() + size_of::<C>());
        size_of::<Packet<C>>()
    };
    let result = loop {
        let bytes: *const c_void = (&raw const packet).cast();
        let uncancelled = (!C::WAITS).then(Uncancelled::throughout);
        // SAFETY: `packet` is `len` readable bytes without padding (the
        // assertion above and both members being plain). The kernel writes at
        // most `room` bytes to `reply`, which the caller vouches for.
        let written = unsafe { libc::write(fd, bytes, len) };
        // `errno` stays as it is.
        drop(uncancelled);
        let result = judge(written, len, C::STEP);
        let interrupted = result.is_err_and(|error| error.errno() == libc::EINTR);
        if !interrupted || C::WAITS {
            break result;
        }
    };
    log::trace!("fd {fd}: {} (command {}): {result:?}", C::STEP, C::NUMBER);
    result
}

/// What the result of `write(2)` says about a command of `len` bytes.
fn judge(written: isize, len: usize, step: &'static str) -> Result<()> {
    match usize::try_from(written) {
        Err(_) => Err(Error::last_os(step)),
        Ok(written) if written == len => Ok(()),
        Ok(_) => Err(Error::new(libc::ENODATA, step)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    wire! {
        struct Question: 12 {
            response: [u32; 2] = 0,
            id: u32 = 8,
        }
        struct Answer: 4 {
            value: u32 = 0,
        }
        struct Notice: 4 {
            id: u32 = 0,
        }
    }

    // SAFETY: no kernel reads it.
    unsafe impl Command for Question {
        const NUMBER: u32 = 7;
        const STEP: &'static str = "ask";
        type Reply = Answer;
        fn set_response(&mut self, address: u64) {
            self.response = [1, u32::from(address != 0)];
        }
    }

    impl Reply for Answer {
        fn preset() -> Self {
            Self { value: u32::MAX }
        }
    }

    // SAFETY: no kernel reads it.
    unsafe impl Command for Notice {
        const NUMBER: u32 = 8;
        const STEP: &'static str = "tell";
        type Reply = ();
        fn set_response(&mut self, _address: u64) {
            unreachable!("no reply, no address");
        }
    }

    #[test]
    fn envelope_and_preset_reply() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let answer = submit(
            writer.as_raw_fd(),
            Question {
                response: [0; 2],
                id: 5,
            },
        )
        .unwrap();
        assert_eq!(answer.value, u32::MAX);
        submit(writer.as_raw_fd(), Notice { id: 6 }).unwrap();
        drop(writer);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        let words: Vec<u32> = bytes
            .chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [7, 12 | 4 << 16, 1, 1, 5, 8, 4, 6]);
    }

    #[test]
    fn errno_is_passed_on() {
        let error = submit(-1, Notice { id: 0 }).unwrap_err();
        assert_eq!((error.errno(), error.step()), (libc::EBADF, "tell"));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = submit(full.as_raw_fd(), Notice { id: 0 }).unwrap_err();
        assert_eq!(error.errno(), libc::ENOSPC);
    }

    #[test]
    fn a_short_count_is_no_data() {
        assert_eq!(judge(4, 5, "s"), Err(Error::new(libc::ENODATA, "s")));
        assert_eq!(judge(0, 5, "s"), Err(Error::new(libc::ENODATA, "s")));
        assert_eq!(judge(5, 5, "s"), Ok(()));
    }

    #[test]
    fn records_beyond_the_header_field_are_refused() {
        let question = Question {
            response: [0; 2],
            id: 0,
        };
        let result = submit_with_records::<_, u64>(-1, question, 8192);
        assert_eq!(result.unwrap_err().errno(), libc::EINVAL);
        let result = submit_with_records::<_, u64>(-1, question, usize::MAX);
        assert_eq!(result.unwrap_err().errno(), libc::EINVAL);
    }
}
