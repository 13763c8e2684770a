//! Completions and information units one by one, for programs that poll the
//! completion queue themselves.

use std::ffi::c_int;
use std::ptr;

use rdmacm::verbs::bindings::ibv_wc;
use rdmacm::{Error, Result};

use super::channel::{channel, srpt_rdma_ch};
use super::device::fail;
use super::ioctx::{received, srpt_recv_ioctx, srpt_send_ioctx};
use super::respond;
use super::types::{SRPT_DATA_IN, SRPT_DATA_OUT, SRPT_NO_DATA, srpt_direct_buf, srpt_direction};
use crate::channel::link::{Completion, Work};
use crate::endpoint;
use crate::login;
use crate::wire::command::Command;
use crate::wire::descriptor::{Descriptor, Segment};

/// Handles the completion of a receive of the channel's queue pair, for programs
/// that poll the completion queue themselves instead of calling srpt_poll_ch.
///
/// Returns the receive, which the program is to hand in by srpt_handle_new_iu
/// or to post again by srpt_post_recv. NULL if it failed or wc is of no receive;
/// the channel is then told as srpt_send_done does.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on, wc is NULL or
/// valid and of the channel's queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_recv_done(
    ch: *mut srpt_rdma_ch,
    wc: *const ibv_wc,
) -> *mut srpt_recv_ioctx {
    // SAFETY: the caller vouches for both pointers.
    let found = unsafe { (channel(ch), wc.as_ref().and_then(endpoint::completion)) };
    let (Ok(ch), Some(completion)) = found else {
        return ptr::null_mut();
    };
    let Completion {
        work: Work::Receive(number),
        result: Ok(length),
    } = completion
    else {
        // SAFETY: as for this function.
        unsafe { srpt_send_done(ch, wc) };
        return ptr::null_mut();
    };
    let Some(ioctx) = ch.receives.get(usize::from(number)) else {
        return ptr::null_mut();
    };
    match ch.with(|channel, _| channel.note_received(number, length)) {
        Ok(()) => {
            ioctx.taken.set(true);
            ptr::from_ref(ioctx).cast_mut()
        }
        Err(error) => fail(&error),
    }
}

/// Handles the completion of a send or RDMA write, for programs that poll the
/// completion queue themselves instead of calling srpt_poll_ch: frees the
/// command, and handles what waited for that.
///
/// # Safety
/// As for srpt_recv_done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_send_done(ch: *const srpt_rdma_ch, wc: *const ibv_wc) {
    // SAFETY: the caller vouches for both pointers.
    let found = unsafe { (channel(ch), wc.as_ref().and_then(endpoint::completion)) };
    if let (Ok(ch), Some(completion)) = found {
        respond(ch.with(|channel, _| {
            channel.completed(completion);
            channel.settle();
        }));
    }
}

/// Handles the completion of an RDMA read, for programs that poll the completion
/// queue themselves instead of calling srpt_poll_ch: executes the command, or,
/// if it failed, closes the channel.
///
/// # Safety
/// As for srpt_recv_done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_rdma_read_done(ch: *mut srpt_rdma_ch, wc: *const ibv_wc) {
    // SAFETY: as for this function.
    unsafe { srpt_send_done(ch, wc) };
}

/// Handles the information unit of a receive that srpt_recv_done returned: a
/// command, task management request, logout or answer.
///
/// Returns true if it was handled, false if it waits for the connection to be
/// established or for a context; it is then handled in its turn. False also for
/// NULL and for a receive that was not taken. The receive is the channel's
/// again.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on, recv_ioctx is
/// NULL or one of its receives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_handle_new_iu(
    ch: *mut srpt_rdma_ch,
    recv_ioctx: *mut srpt_recv_ioctx,
) -> bool {
    // SAFETY: the caller vouches for both pointers.
    let (Ok(ch), Some(ioctx)) = (unsafe { channel(ch) }, unsafe { recv_ioctx.as_ref() }) else {
        return false;
    };
    let handled: Result<bool> = ch
        .with(|channel, _| {
            let handled = channel.hand_in(ioctx.give_back()?);
            channel.settle();
            Ok(handled)
        })
        .and_then(|handled| handled);
    handled.unwrap_or(false)
}

/// Takes a free context for a command. NULL without one.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_get_send_ioctx(ch: *mut srpt_rdma_ch) -> *mut srpt_send_ioctx {
    // SAFETY: the caller vouches for the pointer.
    let Ok(ch) = (unsafe { channel(ch) }) else {
        return ptr::null_mut();
    };
    let slot = ch.with(|channel, _| channel.take_slot()).ok().flatten();
    slot.and_then(|slot| ch.sends.get(usize::from(slot)))
        .map_or(ptr::null_mut(), |ioctx| ptr::from_ref(ioctx).cast_mut())
}

/// Begins the command of a taken receive in a context of srpt_get_send_ioctx.
/// Both are the channel's from then on, unless the receive holds neither
/// command nor task management request: then the context is free again, and the
/// receive still taken.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on, the contexts
/// are NULL or belong to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_handle_cmd(
    ch: *mut srpt_rdma_ch,
    recv_ioctx: *mut srpt_recv_ioctx,
    send_ioctx: *mut srpt_send_ioctx,
) {
    // SAFETY: the caller vouches for all pointers.
    let found = unsafe { (channel(ch), recv_ioctx.as_ref(), send_ioctx.as_ref()) };
    let (Ok(ch), Some(receive), Some(send)) = found else {
        return;
    };
    let begun: Result<()> = ch
        .with(|channel, _| {
            let number = receive.give_back()?;
            if !channel.begin(number, send.index) {
                receive.taken.set(true);
            }
            channel.settle();
            Ok(())
        })
        .and_then(|begun| begun);
    respond(begun);
}

/// Begins the task management request of a taken receive, as srpt_handle_cmd
/// does with a command.
///
/// # Safety
/// As for srpt_handle_cmd.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_handle_tsk_mgmt(
    ch: *mut srpt_rdma_ch,
    recv_ioctx: *mut srpt_recv_ioctx,
    send_ioctx: *mut srpt_send_ioctx,
) {
    // SAFETY: as for this function.
    unsafe { srpt_handle_cmd(ch, recv_ioctx, send_ioctx) };
}

/// Reads the descriptor of the command in a taken receive.
///
/// dir: set to the direction of the data.
/// bufs: where to put the pieces of the initiator's memory, may be NULL.
/// count: room at bufs; set to the number of pieces.
/// data_len: set to the bytes of data.
///
/// A list of pieces that is in the initiator's memory is reported as one piece,
/// the list itself, and immediate data as none.
///
/// Returns 0; -EINVAL for NULL and for what is no usable command; -ENOSPC if
/// there are more pieces than room; else as srpt_post_recv.
///
/// # Safety
/// recv_ioctx is NULL or a receive of a living channel that no other thread
/// works on, dir, count and data_len are NULL or places, bufs is NULL or has room
/// for so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_get_desc_tbl(
    recv_ioctx: *const srpt_recv_ioctx,
    dir: *mut srpt_direction,
    bufs: *mut srpt_direct_buf,
    count: *mut u32,
    data_len: *mut u64,
) -> c_int {
    // SAFETY: the caller vouches for all pointers.
    let places = unsafe { (dir.as_mut(), count.as_mut(), data_len.as_mut()) };
    let (Some(dir), Some(count), Some(data_len)) = places else {
        return -libc::EINVAL;
    };
    // SAFETY: as above.
    let Ok((ch, receive)) = (unsafe { received(recv_ioctx) }) else {
        return -libc::EINVAL;
    };
    if !receive.taken.get() {
        return -libc::EINVAL;
    }
    let immediate = login::immediate(&ch.login, &ch.device.settings);
    let result = ch.with(|channel, _| {
        let invalid = Error::invalid("read the descriptor of a command");
        let parsed = Command::parse(channel.unit(receive.number)).ok_or(invalid)?;
        let data = parsed.data(immediate).map_err(|_| invalid)?;
        let descriptor = match (data.out, data.into) {
            (Descriptor::None, Descriptor::None) => {
                *dir = SRPT_NO_DATA;
                Descriptor::None
            }
            (Descriptor::None, into) => {
                *dir = SRPT_DATA_IN;
                into
            }
            (out, _) => {
                *dir = SRPT_DATA_OUT;
                out
            }
        };
        *data_len = descriptor.length().into();
        let room = if bufs.is_null() { 0 } else { *count };
        // SAFETY: the caller vouches for so much room.
        *count = unsafe { write_pieces(&descriptor, bufs, room) };
        match !bufs.is_null() && *count > room {
            true => Err(Error::new(
                libc::ENOSPC,
                "put pieces where there is no room",
            )),
            false => Ok(()),
        }
    });
    respond(result.and_then(|read| read))
}

/// Writes as many pieces as fit, and returns how many there are.
///
/// # Safety
/// `bufs` has room for `room`.
unsafe fn write_pieces(descriptor: &Descriptor<'_>, bufs: *mut srpt_direct_buf, room: u32) -> u32 {
    let mut count = 0;
    let mut add = |piece: Segment| {
        if count < room {
            let piece = srpt_direct_buf {
                va: piece.address,
                key: piece.key,
                len: piece.length,
            };
            // SAFETY: the caller vouches for the room.
            unsafe { bufs.add(count as usize).write(piece) };
        }
        count += 1;
    };
    match descriptor {
        Descriptor::Direct(piece) | Descriptor::Remote { list: piece, .. } => add(*piece),
        Descriptor::Indirect(table) => table.segments().for_each(add),
        Descriptor::None | Descriptor::Immediate { .. } => {}
    }
    count
}
