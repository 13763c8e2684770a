//! The RDMA devices of the machine: which there are, their contexts, limits,
//! and the protection and XRC domains that all identifiers of a device share.
//!
//! The list follows hot-plugging: it is compared with libibverbs' whenever a
//! program asks for it or the kernel names a device that is not in it. A
//! device is opened when first used; a failure to open is not remembered. The
//! list keeps a living device open. A device that vanished leaves the list and
//! is closed when nobody uses it any more.
//!
//! Identifiers and their addresses are not this module's business.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::mem::{MaybeUninit, size_of};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use once_cell::sync::OnceCell;

use crate::error::{Error, Result};
use crate::lock::locked;
use crate::verbs::bindings::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP,
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_alloc_pd, ibv_close_device, ibv_context,
    ibv_dealloc_pd, ibv_device, ibv_device_attr, ibv_free_device_list, ibv_get_device_guid,
    ibv_get_device_index, ibv_get_device_list, ibv_get_device_name, ibv_node_type, ibv_open_device,
    ibv_pd, ibv_port_attr, ibv_query_device, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::verbs::{self, dispatch};

use super::library;

/// "The kernel or libibverbs did not tell the index."
const UNKNOWN_INDEX: i32 = -1;

/// The devices known, ascending by index.
static DEVICES: RwLock<Vec<Arc<Entry>>> = RwLock::new(Vec::new());
/// Held while the list is compared, so that two comparisons do not overtake
/// one another. Never taken on the path of a connection to a known device.
static RESYNC: Mutex<()> = Mutex::new(());
/// The devices in each array that [`contexts`] handed out, by its address.
static HANDED_OUT: Mutex<BTreeMap<usize, Vec<Arc<Device>>>> = Mutex::new(BTreeMap::new());

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

/// What identifies a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    /// Address of libibverbs' object, which stays the same for as long as the
    /// device exists and the object is referenced.
    object: usize,
    /// Node GUID in network order, zero if it has none.
    guid: u64,
    /// The kernel's index, or [`UNKNOWN_INDEX`].
    index: i32,
}

impl Key {
    /// Whether a reply of the kernel that names `guid` and `index` means this
    /// device. GUIDs may be missing (zero) or shared, so the index decides
    /// wherever both sides know it.
    fn matches(&self, guid: u64, index: i32) -> bool {
        if index == UNKNOWN_INDEX || self.index == UNKNOWN_INDEX {
            guid != 0 && guid == self.guid
        } else {
            index == self.index
        }
    }

    /// Whether `self`, which is new, is to be listed before `other`.
    fn precedes(&self, other: &Self) -> bool {
        if self.index == UNKNOWN_INDEX {
            u64::from_be(self.guid) < u64::from_be(other.guid)
        } else {
            self.index < other.index
        }
    }
}

/// Where a place of the new list comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Stays, from this place of the list before.
    Known(usize),
    /// Is new, from this place of libibverbs' list.
    Fresh(usize),
}

/// The new list, given the one before and libibverbs': devices that are still
/// there keep their order, new ones are inserted at their place.
fn reconcile(known: &[Key], fresh: &[Key]) -> Vec<Source> {
    let same = |a: &Key, b: &Key| a.object == b.object;
    let mut merged: Vec<(Key, Source)> = known
        .iter()
        .enumerate()
        .filter(|(_, key)| fresh.iter().any(|other| same(key, other)))
        .map(|(place, key)| (*key, Source::Known(place)))
        .collect();
    for (place, key) in fresh.iter().enumerate() {
        if known.iter().any(|other| same(key, other)) {
            continue;
        }
        let at = merged
            .iter()
            .position(|(other, _)| key.precedes(other))
            .unwrap_or(merged.len());
        merged.insert(at, (*key, Source::Fresh(place)));
    }
    merged.into_iter().map(|(_, source)| source).collect()
}

/// A list obtained from libibverbs; keeps its objects alive.
struct List {
    devices: *mut *mut ibv_device,
    length: usize,
}

// SAFETY: the array is only read until it is freed, and libibverbs' device
// objects are immutable and counted with its own locking.
unsafe impl Send for List {}
// SAFETY: as for `Send`.
unsafe impl Sync for List {}

impl List {
    fn fetch() -> Result<Self> {
        let mut count = 0;
        // SAFETY: the count is a valid place to write to.
        let devices = unsafe { ibv_get_device_list(&mut count) };
        if devices.is_null() {
            return Err(Error::last_os("list the RDMA devices"));
        }
        let length = usize::try_from(count).unwrap_or(0);
        Ok(Self { devices, length })
    }

    fn keys(&self) -> Vec<Key> {
        // SAFETY: libibverbs returned an array of that many pointers, which
        // lives until `drop`.
        let devices = unsafe { std::slice::from_raw_parts(self.devices, self.length) };
        devices
            .iter()
            .map(|&device| Key {
                object: device as usize,
                // SAFETY: the list keeps its objects alive.
                guid: unsafe { ibv_get_device_guid(device) },
                // SAFETY: as above.
                index: unsafe { ibv_get_device_index(device) },
            })
            .collect()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: obtained from ibv_get_device_list, freed once.
        unsafe { ibv_free_device_list(self.devices) };
    }
}

/// A device in the list, opened or not.
struct Entry {
    key: Key,
    /// Keeps `key.object` alive until it is opened.
    _list: Arc<List>,
    opened: OnceCell<Arc<Device>>,
}

impl Entry {
    /// The opened device. Several threads that open the same device wait for
    /// one of them; other devices are not affected.
    fn open(&self) -> Result<Arc<Device>> {
        self.opened
            .get_or_try_init(|| Device::open(&self.key).map(Arc::new))
            .cloned()
    }
}

fn snapshot() -> Vec<Arc<Entry>> {
    DEVICES
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn lookup(guid: u64, index: i32) -> Option<Arc<Entry>> {
    let devices = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
    devices
        .iter()
        .find(|entry| entry.key.matches(guid, index))
        .cloned()
}

/// Compares the list with libibverbs'.
///
/// `ENODEV` if there is no device (the list is then empty) or libibverbs
/// cannot tell (the list is then as before).
fn resync() -> Result<()> {
    let _guard = locked(&RESYNC);
    let list = List::fetch().map_err(|error| {
        log::error!("{error}; is the ib_uverbs module loaded?");
        no_device()
    })?;
    let known = snapshot();
    let known_keys: Vec<Key> = known.iter().map(|entry| entry.key).collect();
    let fresh_keys = list.keys();
    let list = Arc::new(list);
    let merged: Vec<Arc<Entry>> = reconcile(&known_keys, &fresh_keys)
        .into_iter()
        .filter_map(|source| match source {
            Source::Known(place) => known.get(place).cloned(),
            Source::Fresh(place) => fresh_keys.get(place).map(|key| {
                Arc::new(Entry {
                    key: *key,
                    _list: Arc::clone(&list),
                    opened: OnceCell::new(),
                })
            }),
        })
        .collect();
    let empty = merged.is_empty();
    log::debug!(
        "devices: {} known before, {} now",
        known.len(),
        merged.len()
    );
    *DEVICES.write().unwrap_or_else(PoisonError::into_inner) = merged;
    // The last reference to a vanished device may go here, outside the lock,
    // since closing it enters the kernel.
    drop(known);
    if empty { Err(no_device()) } else { Ok(()) }
}

const fn no_device() -> Error {
    Error::new(libc::ENODEV, "find an RDMA device")
}

/// Makes sure that at least one RDMA device is known.
///
/// # Errors
/// `ENODEV` if libibverbs lists none; the next call looks again.
pub fn ensure_any() -> Result<()> {
    let known = !DEVICES
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .is_empty();
    if known { Ok(()) } else { resync() }
}

/// The device that a reply of the kernel names, opened.
///
/// `guid` is the node GUID in network order, as the reply holds it in memory;
/// `index` is the kernel's index, -1 from kernels that do not tell it. Blocks
/// while the device is opened for the first time.
///
/// # Errors
/// `ENODEV` if there is no such device or it cannot be opened (the log has
/// the cause); either is tried anew by the next call.
pub fn find(guid: u64, index: i32) -> Result<Arc<Device>> {
    let entry = match lookup(guid, index) {
        Some(entry) => entry,
        None => {
            resync()?;
            lookup(guid, index).ok_or(no_device())?
        }
    };
    entry.open().map_err(|error| {
        log::error!("device index {index}: {error}; may its uverbs node be opened?");
        Error::new(libc::ENODEV, "open the RDMA device")
    })
}

/// All devices that can be opened, opened, after a look for new ones.
///
/// # Errors
/// `ENODEV` if there is no device, not even one that cannot be opened.
pub fn all() -> Result<Vec<Arc<Device>>> {
    resync()?;
    Ok(open_known())
}

/// Whether a device that is known, and can be opened, has an InfiniBand port.
pub fn any_infiniband_port() -> bool {
    open_known().iter().any(|device| {
        device
            .ports()
            .any(|(_, link)| link == LinkLayer::InfiniBand)
    })
}

fn open_known() -> Vec<Arc<Device>> {
    let open = |entry: Arc<Entry>| {
        entry
            .open()
            .inspect_err(|error| log::warn!("device left out: {error}"))
            .ok()
    };
    snapshot().into_iter().filter_map(open).collect()
}

/// The contexts of all devices, for `rdma_get_devices(3)`: an array from
/// `malloc` that ends with a null pointer, and the number of contexts before
/// that. Devices that cannot be opened are left out. Each listed device stays
/// open until [`release_contexts`].
///
/// # Errors
/// `ENODEV` if there is no device, `EPERM` if the kernel's connection manager
/// speaks another ABI, `ENOMEM`.
pub fn contexts() -> Result<(*mut *mut ibv_context, c_int)> {
    library::char_device()?;
    let devices = all()?;
    let count = devices.len();
    let bytes = count
        .saturating_add(1)
        .saturating_mul(size_of::<*mut ibv_context>());
    // SAFETY: malloc is always sound to call.
    let array = unsafe { libc::malloc(bytes) }.cast::<*mut ibv_context>();
    if array.is_null() {
        return Err(Error::new(libc::ENOMEM, "allocate the list of devices"));
    }
    let ends = devices
        .iter()
        .map(|device| device.context())
        .chain([ptr::null_mut()]);
    for (place, context) in ends.enumerate() {
        // SAFETY: the array has room for all devices and the end mark.
        unsafe { array.add(place).write(context) };
    }
    locked(&HANDED_OUT).insert(array as usize, devices);
    Ok((array, c_int::try_from(count).unwrap_or(c_int::MAX)))
}

/// Takes back an array of [`contexts`]. Devices that vanished in the meantime
/// are closed if it held the last reference. Null, and what is no such array,
/// is left alone.
pub fn release_contexts(array: *mut *mut ibv_context) {
    if array.is_null() {
        return;
    }
    let devices = locked(&HANDED_OUT).remove(&(array as usize));
    if devices.is_none() {
        log::warn!("a list that is none of the library's is not freed");
        return;
    }
    // SAFETY: registered, so it came from malloc in `contexts` and was not
    // freed before.
    unsafe { libc::free(array.cast()) };
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
    max_qp_wr: u32,
    pd: OnceCell<Shared<ibv_pd>>,
    xrcd: OnceCell<Shared<ibv_xrcd>>,
}

// SAFETY: libibverbs' objects may be used from any thread, and the pointers
// do not change after creation.
unsafe impl Send for Device {}
// SAFETY: as for `Send`.
unsafe impl Sync for Device {}

/// Depths are bytes in the connection manager's messages.
fn depth(limit: i32) -> u8 {
    u8::try_from(limit.max(0)).unwrap_or(u8::MAX)
}

impl Device {
    fn open(key: &Key) -> Result<Self> {
        let device = key.object as *mut ibv_device;
        // SAFETY: the list that the key came from keeps the object alive.
        let context = unsafe { ibv_open_device(device) };
        if context.is_null() {
            return Err(Error::last_os("open an RDMA device"));
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
            max_qp_wr: 0,
            pd: OnceCell::new(),
            xrcd: OnceCell::new(),
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
        opened.max_qp_wr = u32::try_from(attr.max_qp_wr).unwrap_or(0);
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

    /// Most work requests on a queue.
    pub fn max_qp_wr(&self) -> u32 {
        self.max_qp_wr
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

    fn key(object: usize, guid: u64, index: i32) -> Key {
        Key {
            object,
            guid: guid.to_be(),
            index,
        }
    }

    #[test]
    fn first_list_is_sorted_by_index() {
        let fresh = [key(1, 9, 2), key(2, 8, 0), key(3, 7, 1)];
        let expected = [Source::Fresh(1), Source::Fresh(2), Source::Fresh(0)];
        assert_eq!(reconcile(&[], &fresh), expected);
    }

    #[test]
    fn without_indices_the_guid_sorts() {
        let fresh = [key(1, 0x0100, -1), key(2, 0x0001, -1)];
        assert_eq!(reconcile(&[], &fresh), [Source::Fresh(1), Source::Fresh(0)]);
    }

    #[test]
    fn vanished_leave_and_new_ones_come_in_order() {
        let known = [key(1, 1, 0), key(2, 2, 3), key(3, 3, 4)];
        let fresh = [key(3, 3, 4), key(4, 2, 5), key(1, 1, 0), key(5, 5, 2)];
        let expected = [
            Source::Known(0),
            Source::Fresh(3),
            Source::Known(2),
            Source::Fresh(1),
        ];
        assert_eq!(reconcile(&known, &fresh), expected);
    }

    #[test]
    fn an_empty_list_empties_ours() {
        assert_eq!(reconcile(&[key(1, 1, 0)], &[]), []);
    }

    #[test]
    fn the_index_decides_where_known() {
        let device = key(1, 7, 3);
        assert!(device.matches(7_u64.to_be(), 3));
        assert!(device.matches(0, 3));
        assert!(!device.matches(7_u64.to_be(), 4));
        assert!(device.matches(7_u64.to_be(), -1));
        assert!(!device.matches(8_u64.to_be(), -1));
        let without = key(1, 7, -1);
        assert!(without.matches(7_u64.to_be(), 3));
    }

    #[test]
    fn no_guid_matches_by_index_only() {
        let device = key(1, 0, 3);
        assert!(device.matches(0, 3));
        assert!(!device.matches(0, -1));
    }

    #[test]
    fn depths_fit_a_byte() {
        assert_eq!(depth(-1), 0);
        assert_eq!(depth(16), 16);
        assert_eq!(depth(256), u8::MAX);
    }
}
