//! An opened device: its limits and ports, and the domains that all of its
//! users share.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;

use crate::error::{Error, Result};
use crate::lock::OnceCell;
use crate::lock::atomic::{AtomicBool, Ordering};
use crate::verbs::bindings::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP,
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_alloc_pd, ibv_close_device, ibv_context,
    ibv_dealloc_pd, ibv_device, ibv_device_attr, ibv_get_device_name, ibv_node_type,
    ibv_open_device, ibv_pd, ibv_port_attr, ibv_query_device, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::verbs::{self, dispatch};

use super::absence;

/// How data travels between the devices' peers; decides which connection
/// manager of the kernel is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand protocols, on InfiniBand or on Ethernet (RoCE).
    InfiniBand,
    /// RDMA over TCP.
    Iwarp,
    /// Neither; such devices cannot connect.
    Other,
}

/// What a port is plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// An InfiniBand fabric.
    InfiniBand,
    /// Ethernet.
    Ethernet,
    /// Not told, or no such port.
    Unspecified,
}

/// A domain that all identifiers of a device share.
struct Shared<T>(*mut T);

/// An opened device. Shared by all who use it; all methods may be called from
/// any thread.
pub struct Device {
    context: *mut ibv_context,
    name: String,
    transport: Transport,
    node_type: ibv_node_type,
    ports: Vec<LinkLayer>,
    max_responder_resources: u8,
    max_initiator_depth: u8,
    max_queue: u32,
    posts_by_system_call: bool,
    pd: OnceCell<Shared<ibv_pd>>,
    xrcd: OnceCell<Shared<ibv_xrcd>>,
    removed: AtomicBool,
}

// SAFETY: libibverbs' objects may be used from any thread, and the pointers
// do not change after creation.
unsafe impl Send for Device {}
// SAFETY: as for `Send`.
unsafe impl Sync for Device {}

/// Vendors of the kernel's devices that are software: none, soft-RoCE, soft-iWARP.
const SOFTWARE: [u32; 3] = [0, 0xFF_FFFF, 0x62_6D74];

/// Depths are bytes in the connection manager's messages.
fn depth(limit: i32) -> u8 {
    u8::try_from(limit.max(0)).unwrap_or(u8::MAX)
}

impl Device {
    /// Opens a device of libibverbs and reads its limits.
    ///
    /// # Errors
    /// What its node says if that cannot be opened, else what libibverbs says.
    ///
    /// # Safety
    /// `device` is alive.
    pub(super) unsafe fn open(device: *mut ibv_device) -> Result<Self> {
        // SAFETY: the caller vouches for the device.
        let context = unsafe { ibv_open_device(device) };
        if context.is_null() {
            let error = Error::last_os("open an RDMA device");
            let (name, node) = (name_of(device), node_of(device));
            return Err(absence::unopened(&name, &node, error));
        }
        // From here on, dropping closes the context.
        let mut opened = Self {
            context,
            name: name_of(device),
            // SAFETY: as above; the member does not change.
            transport: transport_of(unsafe { (*device).transport_type }),
            // SAFETY: as above.
            node_type: unsafe { (*device).node_type },
            ports: Vec::new(),
            max_responder_resources: 0,
            max_initiator_depth: 0,
            max_queue: 0,
            posts_by_system_call: true,
            pd: OnceCell::new(),
            xrcd: OnceCell::new(),
            removed: AtomicBool::new(false),
        };
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open, the structure is ours.
        let status = unsafe { ibv_query_device(context, attr.as_mut_ptr()) };
        if status != 0 {
            return Err(verbs::failure(status, "query an RDMA device"));
        }
        // SAFETY: plain data, zeroed and then filled.
        let attr = unsafe { attr.assume_init() };
        opened.max_responder_resources = depth(attr.max_qp_rd_atom);
        opened.max_initiator_depth = depth(attr.max_qp_init_rd_atom);
        let most = attr.max_qp_wr.min(attr.max_cqe / 2);
        opened.max_queue = u32::try_from(most).unwrap_or(0);
        opened.posts_by_system_call = SOFTWARE.contains(&attr.vendor_id);
        opened.ports = (1..=attr.phys_port_cnt)
            .map(|port| opened.query_link_layer(port))
            .collect();
        log::debug!(
            "{opened}: opened, {:?}, ports {:?}",
            opened.transport,
            opened.ports
        );
        Ok(opened)
    }

    fn query_link_layer(&self, port: u8) -> LinkLayer {
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is open, the structure is ours.
        let status = unsafe { dispatch::query_port(self.context, port, attr.as_mut_ptr()) };
        if status != 0 {
            let error = verbs::failure(status, "query a port");
            log::warn!("{self}: port {port}: {error}");
            return LinkLayer::Unspecified;
        }
        // SAFETY: plain data, zeroed and then filled.
        match u32::from(unsafe { attr.assume_init() }.link_layer) {
            IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
            IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        }
    }

    /// Notes that the kernel reported the removal of the device.
    pub(super) fn set_removed(&self) {
        self.removed.store(true, Ordering::SeqCst);
    }

    /// Whether the kernel reported the removal of the device.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }

    /// The open context; valid as long as the device is referenced.
    pub fn context(&self) -> *mut ibv_context {
        self.context
    }

    /// The name, as `ibv_devices(1)` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How data travels.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// What kind of device it is: an InfiniBand channel adapter (RoCE too),
    /// an iWARP adapter or another (`enum ibv_node_type`).
    pub fn node_type(&self) -> ibv_node_type {
        self.node_type
    }

    /// All ports, from 1, and what each is plugged into.
    pub fn ports(&self) -> impl Iterator<Item = (u8, LinkLayer)> + '_ {
        (1..=u8::MAX).zip(self.ports.iter().copied())
    }

    /// What `port` (from 1) is plugged into.
    pub fn link_layer(&self, port: u8) -> LinkLayer {
        usize::from(port)
            .checked_sub(1)
            .and_then(|place| self.ports.get(place))
            .copied()
            .unwrap_or(LinkLayer::Unspecified)
    }

    /// Most incoming RDMA reads and atomics at once on a queue pair.
    pub fn max_responder_resources(&self) -> u8 {
        self.max_responder_resources
    }

    /// Most outgoing RDMA reads and atomics at once on a queue pair.
    pub fn max_initiator_depth(&self) -> u8 {
        self.max_initiator_depth
    }

    /// Most work requests on each queue of a queue pair with one completion
    /// queue, which has an entry for all of them.
    pub fn max_queue(&self) -> u32 {
        self.max_queue
    }

    /// Whether the device is one of the kernel's software, which is told of each send by
    /// a system call.
    pub fn posts_by_system_call(&self) -> bool {
        self.posts_by_system_call
    }

    /// The protection domain that identifiers of this device get, allocated
    /// when first asked for and kept as long as the device.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn pd(&self) -> Result<*mut ibv_pd> {
        let pd = self.pd.get_or_try_init(|| {
            // SAFETY: the context is open.
            let pd = unsafe { ibv_alloc_pd(self.context) };
            if pd.is_null() {
                Err(Error::last_os("allocate a protection domain"))
            } else {
                Ok(Shared(pd))
            }
        })?;
        Ok(pd.0)
    }

    /// The XRC domain that queue pairs and shared receive queues of this
    /// device get, opened when first asked for and kept as long as the device.
    ///
    /// # Errors
    /// What libibverbs says; `EOPNOTSUPP` if the device has no XRC.
    pub fn xrcd(&self) -> Result<*mut ibv_xrcd> {
        let xrcd = self.xrcd.get_or_try_init(|| {
            let mut attr = ibv_xrcd_init_attr {
                comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                fd: -1,
                oflags: libc::O_CREAT,
            };
            // SAFETY: the context is open, the structure is ours.
            let xrcd = unsafe { dispatch::open_xrcd(self.context, &mut attr) };
            if xrcd.is_null() {
                Err(Error::last_os("open an XRC domain"))
            } else {
                Ok(Shared(xrcd))
            }
        })?;
        Ok(xrcd.0)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.name)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut busy = 0;
        if let Some(Shared(xrcd)) = self.xrcd.take() {
            // SAFETY: opened by us, and nobody can ask for it any more.
            busy |= unsafe { dispatch::close_xrcd(xrcd) };
        }
        if let Some(Shared(pd)) = self.pd.take() {
            // SAFETY: allocated by us, and nobody can ask for it any more.
            busy |= unsafe { ibv_dealloc_pd(pd) };
        }
        if busy != 0 {
            // Closing would pull the context from under the program's objects.
            log::warn!("{self}: left open, the program still has objects on it");
            return;
        }
        // SAFETY: opened by us; whoever uses it holds a reference to `self`.
        if unsafe { ibv_close_device(self.context) } == 0 {
            log::debug!("{self}: closed");
        }
    }
}

fn name_of(device: *mut ibv_device) -> String {
    // SAFETY: the caller's object is alive.
    let name = unsafe { ibv_get_device_name(device) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a string inside the object.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

/// File name of the device's node.
fn node_of(device: *mut ibv_device) -> String {
    // SAFETY: the caller's object is alive, and the member does not change.
    let name = unsafe { (*device).dev_name };
    let name = name.map(|c| c.to_ne_bytes()[0]);
    let end = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(end).into_owned()
}

fn transport_of(number: i32) -> Transport {
    match number {
        IBV_TRANSPORT_IB => Transport::InfiniBand,
        IBV_TRANSPORT_IWARP => Transport::Iwarp,
        _ => Transport::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_fit_a_byte() {
        assert_eq!(depth(-1), 0);
        assert_eq!(depth(16), 16);
        assert_eq!(depth(256), u8::MAX);
    }
}
