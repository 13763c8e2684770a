//! The connection manager of a C program: the functions of the librdmacm that
//! made its identifiers. It is looked up at run time, since libsrpt has the
//! Rust side of one inside, whose identifiers are not the program's.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use rdmacm::abi::{rdma_cm_id, rdma_conn_param};
use rdmacm::verbs::bindings::{ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};
use rdmacm::{Error, Result};

use crate::connection::{Connection, accept_param};

type CreateQp = unsafe extern "C" fn(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
type OnId = unsafe extern "C" fn(*mut rdma_cm_id) -> c_int;
type DestroyQp = unsafe extern "C" fn(*mut rdma_cm_id);
type InitAttr = unsafe extern "C" fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
type Accept = unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
type Reject = unsafe extern "C" fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
type Notify = unsafe extern "C" fn(*mut rdma_cm_id, c_int) -> c_int;

/// The functions that are needed.
#[derive(Clone, Copy)]
struct Functions {
    create_qp: CreateQp,
    destroy_qp: DestroyQp,
    init_qp_attr: InitAttr,
    accept: Accept,
    reject: Reject,
    disconnect: OnId,
    notify: Notify,
    destroy_id: OnId,
}

fn look_up(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a terminated name; the default scope always exists.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

impl Functions {
    fn get() -> Result<&'static Self> {
        static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
        FUNCTIONS
            .get_or_init(Self::load)
            .as_ref()
            .ok_or(Error::new(libc::ENOSYS, "find librdmacm in this process"))
    }

    fn load() -> Option<Self> {
        // SAFETY: rdma_cma.h declares functions of these names with these
        // types, and libraries keep to it.
        unsafe {
            Some(Self {
                create_qp: mem::transmute::<*mut c_void, CreateQp>(look_up(c"rdma_create_qp")?),
                destroy_qp: mem::transmute::<*mut c_void, DestroyQp>(look_up(c"rdma_destroy_qp")?),
                init_qp_attr: mem::transmute::<*mut c_void, InitAttr>(look_up(
                    c"rdma_init_qp_attr",
                )?),
                accept: mem::transmute::<*mut c_void, Accept>(look_up(c"rdma_accept")?),
                reject: mem::transmute::<*mut c_void, Reject>(look_up(c"rdma_reject")?),
                disconnect: mem::transmute::<*mut c_void, OnId>(look_up(c"rdma_disconnect")?),
                notify: mem::transmute::<*mut c_void, Notify>(look_up(c"rdma_notify")?),
                destroy_id: mem::transmute::<*mut c_void, OnId>(look_up(c"rdma_destroy_id")?),
            })
        }
    }
}

/// An identifier of the program's.
#[derive(Clone, Copy)]
pub struct ForeignId {
    id: *mut rdma_cm_id,
    functions: &'static Functions,
}

fn check(status: c_int, step: &'static str) -> Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(Error::last_os(step)),
    }
}

impl ForeignId {
    /// The identifier at `id`.
    ///
    /// # Errors
    /// `EINVAL` for null, `ENOSYS` without librdmacm.
    ///
    /// # Safety
    /// `id` is null or an identifier of librdmacm that outlives the result.
    pub unsafe fn new(id: *mut rdma_cm_id) -> Result<Self> {
        if id.is_null() {
            return Err(Error::invalid("use no identifier"));
        }
        let functions = Functions::get()?;
        Ok(Self { id, functions })
    }

    /// The identifier.
    pub fn as_pointer(self) -> *mut rdma_cm_id {
        self.id
    }

    /// Destroys the identifier, which is the last thing to do with it.
    pub fn destroy(self) {
        // SAFETY: alive until now, as `new` demands.
        if unsafe { (self.functions.destroy_id)(self.id) } != 0 {
            log::error!("{}", Error::last_os("destroy an identifier"));
        }
    }
}

impl Connection for ForeignId {
    fn context(&self) -> Result<*mut ibv_context> {
        // SAFETY: alive, as `new` demands.
        let context = unsafe { (*self.id).verbs };
        if context.is_null() {
            return Err(Error::invalid("use the device of an unbound identifier"));
        }
        Ok(context)
    }

    unsafe fn create_qp(&self, attr: &mut ibv_qp_init_attr) -> Result<()> {
        // SAFETY: the identifier is alive, the caller vouches for the rest.
        let status = unsafe { (self.functions.create_qp)(self.id, std::ptr::null_mut(), attr) };
        check(status, "create a queue pair")
    }

    fn destroy_qp(&self) {
        if !self.qp().is_null() {
            // SAFETY: the identifier is alive.
            unsafe { (self.functions.destroy_qp)(self.id) };
        }
    }

    fn qp(&self) -> *mut ibv_qp {
        // SAFETY: the identifier is alive.
        unsafe { (*self.id).qp }
    }

    fn init_attr(&self, attr: &mut ibv_qp_attr) -> Result<i32> {
        let mut mask = 0;
        // SAFETY: the identifier is alive, the places are ours.
        let status = unsafe { (self.functions.init_qp_attr)(self.id, attr, &mut mask) };
        check(status, "get attributes of a queue pair").map(|()| mask)
    }

    fn accept(&self, private_data: &[u8], initiator_depth: u8) -> Result<()> {
        let param = accept_param(private_data, initiator_depth);
        let mut param = rdma_conn_param {
            private_data: param.private_data.as_ptr().cast(),
            private_data_len: private_data.len() as u8,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq,
            qp_num: param.qp_num,
        };
        // SAFETY: the identifier is alive, the data too until the end.
        check(
            unsafe { (self.functions.accept)(self.id, &mut param) },
            "accept a connection",
        )
    }

    fn reject(&self, private_data: &[u8]) -> Result<()> {
        let length = private_data.len() as u8;
        // SAFETY: the identifier is alive, the data too until the end.
        let status =
            unsafe { (self.functions.reject)(self.id, private_data.as_ptr().cast(), length) };
        check(status, "reject a connection")
    }

    fn disconnect(&self) -> Result<()> {
        // SAFETY: the identifier is alive.
        check(
            unsafe { (self.functions.disconnect)(self.id) },
            "disconnect",
        )
    }

    fn notify(&self, event: u32) -> Result<()> {
        // SAFETY: the identifier is alive.
        check(
            unsafe { (self.functions.notify)(self.id, event as c_int) },
            "tell of an event of a queue pair",
        )
    }
}
