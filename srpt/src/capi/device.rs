//! Target ports: srpt_add_one and what is about all channels of one.

use std::ffi::{CStr, c_char, c_int};
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdmacm::{Error, Result};

use super::executor::Program;
use super::types::{SRPT_QP_MANUAL, srpt_port_attr};
use crate::queue_pair::QpPolicy;
use crate::server::Settings;
use crate::session::Sessions;
use crate::wire::PortId;

/// A target port.
pub struct srpt_device {
    pub(super) settings: Settings,
    pub(super) program: Program,
    pub(super) sessions: Arc<Sessions>,
    pub(super) disabled: AtomicBool,
    pub(super) pd: *mut rdmacm::verbs::bindings::ibv_pd,
}

// SAFETY: the protection domain may be used from any thread and does not
// change; all else is `Send`.
unsafe impl Send for srpt_device {}
// SAFETY: as for `Send`.
unsafe impl Sync for srpt_device {}

/// The device at `sdev`, kept alive by the result.
///
/// # Safety
/// `sdev` is null or came from srpt_add_one and is not removed.
pub(super) unsafe fn device(sdev: *const srpt_device) -> Result<Arc<srpt_device>> {
    if sdev.is_null() {
        return Err(Error::invalid("use no device"));
    }
    // SAFETY: the pointer came from `Arc::into_raw`, and the caller vouches
    // that its reference is not given back yet.
    unsafe {
        Arc::increment_strong_count(sdev);
        Ok(Arc::from_raw(sdev))
    }
}

/// Bytes of the smallest pool: two of the smallest buffers.
const LEAST_POOL: usize = 2 * 4096;

fn settings(attr: &srpt_port_attr) -> Result<Settings> {
    let or = |given: u32, usual: u32| if given == 0 { usual } else { given };
    // Only a server listens by itself; programs in C do so on their own.
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let mut settings = Settings::new(nowhere, PortId(attr.port_id));
    let credits = or(attr.credits, settings.credits.into());
    if !(2..=1024).contains(&credits) {
        return Err(Error::invalid(
            "give fewer than 2 or more than 1024 credits",
        ));
    }
    settings.credits = credits as u16;
    settings.immediate = or(attr.max_imm_data, settings.immediate).min(1 << 20);
    settings.max_transfer = or(attr.max_transfer, 1 << 20) as usize;
    // A command holds its data and the list of the pieces at the same time.
    let least = settings.max_transfer.saturating_mul(2).max(LEAST_POOL);
    settings.pool = match usize::try_from(attr.pool_size) {
        Ok(0) => settings.pool.max(least),
        Ok(size) if size >= least => size,
        _ => return Err(Error::invalid("have a pool of that size")),
    };
    if attr.qp_policy == SRPT_QP_MANUAL {
        settings.policy = QpPolicy::Manual;
    }
    Ok(settings)
}

/// Makes a target port with these attributes. Logins reach it through
/// srpt_cm_handler.
///
/// Returns NULL with errno EINVAL if attr or its ops are NULL, the number of
/// credits is out of range or the pool is too small. Free with srpt_remove_one.
///
/// # Safety
/// attr is NULL or points to a valid structure whose functions keep to what
/// srpt_ops says as long as the device or one of its channels lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_add_one(attr: *const srpt_port_attr) -> *mut srpt_device {
    rdmacm::diag::initialise();
    // SAFETY: the caller vouches for both pointers.
    let made = unsafe { attr.as_ref() }
        .and_then(|attr| Some((attr, *unsafe { attr.ops.as_ref() }?)))
        .ok_or(Error::invalid("add a device without functions"))
        .and_then(|(attr, ops)| {
            Ok(srpt_device {
                settings: settings(attr)?,
                program: Program {
                    ops,
                    context: attr.context,
                },
                sessions: Arc::default(),
                disabled: AtomicBool::new(false),
                pd: attr.pd,
            })
        });
    match made {
        Ok(device) => Arc::into_raw(Arc::new(device)).cast_mut(),
        Err(error) => fail(&error),
    }
}

/// Null, and errno set.
pub(super) fn fail<T>(error: &Error) -> *mut T {
    log::debug!("{error}");
    // SAFETY: errno is always there.
    unsafe { *libc::__errno_location() = error.errno() };
    ptr::null_mut()
}

/// Frees a target port. Channels that still live keep what they need of it.
/// NULL is ignored.
///
/// # Safety
/// sdev is NULL or came from srpt_add_one; it is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_remove_one(sdev: *mut srpt_device) {
    if !sdev.is_null() {
        // SAFETY: the pointer came from `Arc::into_raw`.
        drop(unsafe { Arc::from_raw(sdev.cast_const()) });
    }
}

/// Refuses logins from now on and has all channels of the port disconnected:
/// their descriptors become readable, and srpt_poll_ch does it. Where the
/// kernel's function waits, this one is called until it returns 0.
///
/// Returns the number of channels left, or -EINVAL for NULL. May be called
/// from any thread.
///
/// # Safety
/// sdev is NULL or came from srpt_add_one and is not removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_release_sport(sdev: *mut srpt_device) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    match unsafe { device(sdev) } {
        Ok(device) => {
            if !device.disabled.swap(true, Ordering::AcqRel) {
                device.sessions.close_all();
            }
            c_int::try_from(device.sessions.channels()).unwrap_or(c_int::MAX)
        }
        Err(error) => -error.errno(),
    }
}

/// Has all channels of an initiator disconnected, for instance because it is
/// not allowed any more, as srpt_release_sport does with all.
///
/// i_port_id: 16 bytes, see srpt_parse_i_port_id.
///
/// Returns the number of its channels, or -EINVAL for NULL. May be called from
/// any thread.
///
/// # Safety
/// sdev is NULL or came from srpt_add_one and is not removed; i_port_id is NULL
/// or points to 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_close_session(sdev: *mut srpt_device, i_port_id: *const u8) -> c_int {
    // SAFETY: the caller vouches for both pointers.
    let (device, port) = unsafe { (device(sdev), i_port_id.cast::<[u8; 16]>().as_ref()) };
    match (device, port) {
        (Ok(device), Some(port)) => {
            let channels = device.sessions.close_initiator(PortId(*port));
            c_int::try_from(channels).unwrap_or(c_int::MAX)
        }
        _ => -libc::EINVAL,
    }
}

/// Reads an initiator port from text: hexadecimal digits, an even number of
/// them and at most 32, after an optional "0x". Fewer than 32 are filled up
/// with zeroes in front.
///
/// Returns 0 with i_port_id set, or -EINVAL.
///
/// # Safety
/// i_port_id is NULL or points to 16 bytes, name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_parse_i_port_id(i_port_id: *mut u8, name: *const c_char) -> c_int {
    if i_port_id.is_null() || name.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller vouches for the string.
    let name = unsafe { CStr::from_ptr(name) };
    match name.to_str().ok().and_then(PortId::from_hex) {
        Some(PortId(bytes)) => {
            // SAFETY: the caller vouches for the place.
            unsafe { i_port_id.cast::<[u8; 16]>().write(bytes) };
            0
        }
        None => -libc::EINVAL,
    }
}
