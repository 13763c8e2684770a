//! The list of devices. It follows hot-plugging: it is compared with
//! libibverbs' whenever a program asks for it, the kernel names a device that
//! is not in it, or a program goes on after it heard of a removal. A device is
//! opened when first used; a failure to open is not
//! remembered. The list keeps a living device open. A device that vanished
//! leaves the list and is closed when nobody uses it any more.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fork::Renewed;
use crate::kernel::descriptor::check_free;
use crate::lock::atomic::{AtomicBool, Ordering};
use crate::lock::{Mutex, OnceCell, RwLock, clean, locked};
use crate::verbs::bindings::{
    ibv_device, ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index,
    ibv_get_device_list,
};

use super::absence;
use super::opened::{Device, LinkLayer};

/// "The kernel or libibverbs did not tell the index."
const UNKNOWN_INDEX: i32 = -1;

/// The devices known, ascending by index. A child has its own: the kernel refuses its
/// commands on what its parent has opened.
static DEVICES: Renewed<RwLock<Vec<Arc<Entry>>>> = Renewed::new(RwLock::new(Vec::new()));
/// Held while the list is compared, so that two comparisons do not overtake
/// one another, nor a fork: libibverbs has a lock of its own for its list. Never taken
/// on the path of a connection to a known device.
pub(in crate::cm) static RESYNC: Mutex<()> = Mutex::new(());
/// A device was removed since the last comparison.
static OUTDATED: AtomicBool = AtomicBool::new(false);

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
        let device = self.key.object as *mut ibv_device;
        self.opened
            // SAFETY: the list that the key came from keeps the object alive.
            .get_or_try_init(|| unsafe { Device::open(device) }.map(Arc::new))
            .cloned()
    }

    /// Whether the kernel reported its removal.
    fn is_removed(&self) -> bool {
        self.opened.get().is_some_and(|device| device.is_removed())
    }
}

fn known_devices() -> &'static RwLock<Vec<Arc<Entry>>> {
    DEVICES.get_or_renew(|| RwLock::new(Vec::new()))
}

fn snapshot() -> Vec<Arc<Entry>> {
    clean(known_devices().read()).clone()
}

fn lookup(guid: u64, index: i32) -> Option<Arc<Entry>> {
    let devices = clean(known_devices().read());
    devices
        .iter()
        .find(|entry| entry.key.matches(guid, index))
        .cloned()
}

/// What libibverbs opens at once when it loads its drivers. It does so once: without a
/// descriptor for one of them, there would be no device for the rest of the process.
const DESCRIPTORS: usize = 4;

/// Compares the list with libibverbs'.
///
/// `ENODEV` or `ENXIO` (see [`absence::none_listed`]) if there is no device
/// (the list is then empty), `ENODEV` if libibverbs cannot tell (the list is
/// then as before).
fn resync() -> Result<()> {
    let _guard = locked(&RESYNC);
    // A removal that is noted from here on is compared once more.
    OUTDATED.store(false, Ordering::SeqCst);
    let known = snapshot();
    if known.is_empty() {
        check_free(DESCRIPTORS, "list the RDMA devices")?;
    }
    let list = List::fetch().map_err(|error| {
        log::error!("{error}; is the ib_uverbs module loaded?");
        Error::new(libc::ENODEV, "list the RDMA devices")
    })?;
    // libibverbs may list a device for as long as its removal goes on.
    let staying = known.iter().filter(|entry| !entry.is_removed());
    let staying: Vec<_> = staying.cloned().collect();
    let known_keys: Vec<Key> = staying.iter().map(|entry| entry.key).collect();
    let fresh_keys = list.keys();
    let list = Arc::new(list);
    let merged: Vec<Arc<Entry>> = reconcile(&known_keys, &fresh_keys)
        .into_iter()
        .filter_map(|source| match source {
            Source::Known(place) => staying.get(place).cloned(),
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
    *clean(known_devices().write()) = merged;
    // The last reference to a vanished device may go here, outside the lock,
    // since closing it enters the kernel.
    drop((known, staying));
    if empty {
        Err(absence::none_listed())
    } else {
        Ok(())
    }
}

/// Takes note that the kernel reported the removal of a device. It leaves the
/// list when the program goes on, with its next channel or identifier, and not
/// at once: what the program still has on the device needs the context.
pub(crate) fn note_removal(device: &Device) {
    device.set_removed();
    OUTDATED.store(true, Ordering::SeqCst);
}

/// Makes sure that at least one RDMA device is known.
///
/// # Errors
/// `ENODEV` if there is none, `ENXIO` if there are some but none with a node;
/// the next call looks again.
pub fn ensure_any() -> Result<()> {
    let known = !clean(known_devices().read()).is_empty();
    if known && !OUTDATED.load(Ordering::SeqCst) {
        Ok(())
    } else {
        resync()
    }
}

/// The device that a reply of the kernel names, opened.
///
/// `guid` is the node GUID in network order, as the reply holds it in memory;
/// `index` is the kernel's index, -1 from kernels that do not tell it. Blocks
/// while the device is opened for the first time.
///
/// # Errors
/// `ENODEV` if there is no such device or it cannot be opened, `ENXIO` if its
/// node is missing (the log has the cause); each is tried anew by the next
/// call.
pub fn find(guid: u64, index: i32) -> Result<Arc<Device>> {
    let entry = match lookup(guid, index) {
        Some(entry) => entry,
        None => {
            resync()?;
            lookup(guid, index).ok_or_else(|| absence::not_listed(index))?
        }
    };
    entry.open().map_err(|error| {
        log::error!("device index {index}: {error}");
        Error::new(libc::ENODEV, "open the RDMA device")
    })
}

/// All devices that can be opened, opened, after a look for new ones.
///
/// # Errors
/// `ENODEV` if there is no device, not even one that cannot be opened; `ENXIO`
/// if there are some but none with a node.
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
}
