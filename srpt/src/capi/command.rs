//! Commands and task management requests: states, results, responses.

use std::ffi::{c_int, c_void};
use std::ptr;

use rdmacm::Error;

use super::channel::{channel, srpt_rdma_ch};
use super::device::fail;
use super::ioctx::{command, srpt_send_ioctx};
use super::respond;
use super::types::{SRPT_STATE_DONE, srpt_command_state, srpt_result};
use crate::channel::Channel;
use crate::channel::state::CommandState;
use crate::endpoint::Endpoint;
use crate::executor::{Outcome, Sense, Token, status};
use crate::wire::Tag;
use crate::wire::response::TaskResponse;

/// Finishes a command that srpt_ops.execute was given: data, if any, and
/// response go to the initiator when the channel is polled next. May be called
/// from any thread, also within execute.
///
/// Returns 0, or -EINVAL for NULL.
///
/// # Safety
/// ioctx is NULL or the context of a command that the program has, of a channel
/// that lives; result is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_queue_response(
    ioctx: *mut srpt_send_ioctx,
    result: *const srpt_result,
) -> c_int {
    // SAFETY: the caller vouches for both pointers.
    let (Some(ioctx), Some(result)) = (unsafe { ioctx.as_ref() }, unsafe { result.as_ref() })
    else {
        return -libc::EINVAL;
    };
    let sense = Sense::new(result.sense_key, result.asc, result.ascq);
    let outcome = Outcome {
        status: result.status,
        sense: (result.status == status::CHECK_CONDITION).then_some(sense),
        transferred: result.transferred,
    };
    ioctx.finished.add(Token(ioctx.index), outcome);
    0
}

/// The state in `number`, if there is one.
fn command_state(number: srpt_command_state) -> Option<CommandState> {
    CommandState::ALL
        .into_iter()
        .find(|state| *state as srpt_command_state == number)
}

/// Sets the state of a command unless it is SRPT_STATE_DONE, and returns what
/// it was before; SRPT_STATE_DONE also for NULL, an unknown state, and a context
/// that is free.
///
/// # Safety
/// ioctx is NULL or a context of a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_set_cmd_state(
    ioctx: *mut srpt_send_ioctx,
    new: srpt_command_state,
) -> srpt_command_state {
    // SAFETY: the caller vouches for the pointer.
    let (Ok((ch, ioctx)), Some(new)) = (unsafe { command(ioctx) }, command_state(new)) else {
        return SRPT_STATE_DONE;
    };
    let old = ch.with(|channel, _| {
        channel
            .command_state(ioctx.index)
            .map(|state| state.set(new))
    });
    old.ok()
        .flatten()
        .map_or(SRPT_STATE_DONE, |old| old as srpt_command_state)
}

/// Sets the state of a command to new if it is old, and returns whether it was.
/// False also for NULL, unknown states, and a context that is free.
///
/// # Safety
/// As for srpt_set_cmd_state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_test_and_set_cmd_state(
    ioctx: *mut srpt_send_ioctx,
    old: srpt_command_state,
    new: srpt_command_state,
) -> bool {
    // SAFETY: the caller vouches for the pointer.
    let Ok((ch, ioctx)) = (unsafe { command(ioctx) }) else {
        return false;
    };
    let (Some(old), Some(new)) = (command_state(old), command_state(new)) else {
        return false;
    };
    let changed = ch.with(|channel, _| {
        let state = channel.command_state(ioctx.index);
        state.is_some_and(|state| state.test_and_set(old, new))
    });
    changed.unwrap_or(false)
}

/// Aborts a command: it ends without a response, its credit is given back with
/// the next one. If the program executes it, srpt_ops.abort is called and the
/// command waited for; if its data is on the way, that is.
///
/// Returns 0; -EALREADY if its response is posted or the context is free;
/// -EINVAL for NULL; -EBUSY within a callback of the channel; -ENOTCONN without
/// queue pair.
///
/// # Safety
/// As for srpt_set_cmd_state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_abort_cmd(ioctx: *mut srpt_send_ioctx) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let Ok((ch, ioctx)) = (unsafe { command(ioctx) }) else {
        return -libc::EINVAL;
    };
    let aborted = ch.with(|channel, _| {
        let aborted = channel.abort_command(ioctx.index);
        channel.settle();
        aborted
    });
    respond(aborted.and_then(|aborted| match aborted {
        true => Ok(()),
        false => Err(Error::new(libc::EALREADY, "abort a command that has ended")),
    }))
}

/// Builds the response that a command would get now with this status, where
/// srpt_rsp_buf finds it. Sends nothing: srpt_queue_response does.
///
/// Returns its length, 36 bytes and the sense data; -EINVAL for NULL and for a
/// context that has no command; else as srpt_abort_cmd.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on, ioctx is NULL
/// or belongs to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_build_cmd_rsp(
    ch: *mut srpt_rdma_ch,
    ioctx: *mut srpt_send_ioctx,
    tag: u64,
    status: c_int,
) -> c_int {
    let Ok(status) = u8::try_from(status) else {
        return -libc::EINVAL;
    };
    let tag = Tag(tag.to_ne_bytes());
    // SAFETY: the caller vouches for both pointers.
    unsafe {
        build(ch, ioctx, |channel, index| {
            channel.build_command_response(index, tag, status).len()
        })
    }
}

/// Builds the response that a task management request would get now with this
/// response code (0 done, 4 not supported, 5 failed), as srpt_build_cmd_rsp.
///
/// Returns its length, 40 bytes; -EINVAL also for other codes.
///
/// # Safety
/// As for srpt_build_cmd_rsp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_build_tskmgmt_rsp(
    ch: *mut srpt_rdma_ch,
    ioctx: *mut srpt_send_ioctx,
    rsp_code: u8,
    tag: u64,
) -> c_int {
    let Some(answer) = TaskResponse::from_number(rsp_code) else {
        return -libc::EINVAL;
    };
    let tag = Tag(tag.to_ne_bytes());
    // SAFETY: the caller vouches for both pointers.
    unsafe {
        build(ch, ioctx, |channel, index| {
            channel.build_task_response(index, tag, answer).len()
        })
    }
}

/// # Safety
/// As for [`srpt_build_cmd_rsp`].
unsafe fn build(
    ch: *mut srpt_rdma_ch,
    ioctx: *mut srpt_send_ioctx,
    builder: impl FnOnce(&mut Channel<Endpoint>, u16) -> usize,
) -> c_int {
    // SAFETY: the caller vouches for both pointers.
    let (Ok(ch), Some(ioctx)) = (unsafe { channel(ch) }, unsafe { ioctx.as_ref() }) else {
        return -libc::EINVAL;
    };
    match ch.with(|channel, _| builder(channel, ioctx.index)) {
        Ok(0) => -libc::EINVAL,
        Ok(length) => length as c_int,
        Err(error) => -error.errno(),
    }
}

/// The response buffer of a context, 64 bytes of the channel's that are valid
/// until the response is sent. NULL for NULL.
///
/// # Safety
/// As for srpt_set_cmd_state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_rsp_buf(ioctx: *const srpt_send_ioctx) -> *const c_void {
    // SAFETY: the caller vouches for the pointer.
    let Ok((ch, ioctx)) = (unsafe { command(ioctx) }) else {
        return ptr::null();
    };
    match ch.with(|channel, _| channel.response_buffer(ioctx.index)) {
        Ok(buffer) => buffer.cast(),
        Err(error) => fail::<c_void>(&error),
    }
}
