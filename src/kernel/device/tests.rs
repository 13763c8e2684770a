//! Finding and opening, in folders that stand for `/sys` and `/dev`, and with
//! `/dev/null` as the device.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;

use super::netlink::CharDevReply;
use super::*;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rdmacm-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const REFUSED: Result<CharDevReply> = Err(Error::new(libc::EOPNOTSUPP, "ask"));
/// Long enough for a failure to be told from an answer at once.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn device(dev: Option<libc::dev_t>) -> CharDevice {
    CharDevice {
        name: "rdma_cm".to_owned(),
        dev,
        abi: 4,
    }
}

fn null() -> CharDevice {
    device(Some(libc::makedev(1, 3)))
}

fn errno(result: Result<OwnedFd>) -> i32 {
    result.unwrap_err().errno()
}

#[test]
fn the_kernels_answer_is_believed() {
    let reply = CharDevReply {
        dev: 5,
        abi: 3,
        name: "other".to_owned(),
    };
    let found = locate_with(Ok(reply), Path::new("/nonexistent")).unwrap();
    assert_eq!(
        (found.abi(), found.dev, found.name.as_str()),
        (3, Some(5), "other")
    );
}

#[test]
fn sysfs_is_the_fallback_and_the_current_version_its_own() {
    let sysfs = Folder::new("sysfs");
    assert_eq!(locate_with(REFUSED, &sysfs.0), Ok(device(None)));
    let exhausted = Err(Error::new(libc::EMFILE, "ask"));
    assert_eq!(
        locate_with(exhausted, &sysfs.0).unwrap_err().errno(),
        libc::EMFILE
    );
    sysfs.file("class/infiniband_ucma/abi_version", "3\n");
    assert_eq!(locate_with(REFUSED, &sysfs.0).unwrap().abi(), 3);
    sysfs.file("class/misc/rdma_cm/abi_version", "4\n");
    assert_eq!(locate_with(REFUSED, &sysfs.0).unwrap().abi(), 4);
}

#[test]
fn other_versions_are_not_permitted() {
    let sysfs = Folder::new("version");
    for abi in ["2", "5"] {
        sysfs.file("class/misc/rdma_cm/abi_version", abi);
        assert_eq!(
            locate_with(REFUSED, &sysfs.0).unwrap_err().errno(),
            libc::EPERM
        );
    }
}

#[test]
fn the_node_is_opened_close_on_exec_and_blocking() {
    let dev = Folder::new("node");
    dev.link("infiniband/rdma_cm", "/dev/null");
    for device in [device(None), null()] {
        let fd = device.open_below(&dev.0, 0, LONG).unwrap();
        // SAFETY: takes no pointers.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        // SAFETY: takes no pointers.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & (libc::O_ACCMODE | libc::O_NONBLOCK), libc::O_RDWR);
    }
}

#[test]
fn without_a_number_nothing_is_waited_for() {
    let dev = Folder::new("number");
    assert_eq!(
        errno(device(None).open_below(&dev.0, 0, LONG)),
        libc::ENOENT
    );
    dev.file("infiniband/rdma_cm", "");
    assert_eq!(errno(device(None).open_below(&dev.0, 0, LONG)), libc::ENXIO);
}

#[test]
fn without_the_folder_nothing_is_waited_for() {
    let dev = Folder::new("folder");
    assert_eq!(errno(null().open_below(&dev.0, 0, LONG)), libc::ENOENT);
}

#[test]
fn another_devices_node_is_passed_over() {
    let dev = Folder::new("other");
    dev.link("infiniband/rdma_cm", "/dev/zero");
    dev.link("char/1:3", "/dev/null");
    null().open_below(&dev.0, 0, LONG).unwrap();
}

#[test]
fn a_node_that_appears_is_opened() {
    let dev = Folder::new("appears");
    fs::create_dir(dev.0.join("char")).unwrap();
    thread::scope(|scope| {
        let opener = scope.spawn(|| null().open_below(&dev.0, 0, LONG));
        dev.link("char/0:0", "/dev/zero");
        dev.link("char/1:3", "/dev/null");
        opener.join().unwrap().unwrap();
    });
}

#[test]
fn a_node_that_does_not_appear_is_given_up() {
    let dev = Folder::new("never");
    fs::create_dir(dev.0.join("char")).unwrap();
    let start = Instant::now();
    assert_eq!(errno(null().open_below(&dev.0, 0, SHORT)), libc::ENOENT);
    assert!(start.elapsed() >= SHORT);
    dev.link("char/1:3", "/dev/zero");
    assert_eq!(errno(null().open_below(&dev.0, 0, SHORT)), libc::ENXIO);
}

#[test]
fn missing_permission_is_told_at_once() {
    let dev = Folder::new("permission");
    dev.file("infiniband/rdma_cm", "");
    let node = dev.0.join("infiniband/rdma_cm");
    fs::set_permissions(&node, fs::Permissions::from_mode(0o000)).unwrap();
    fs::create_dir(dev.0.join("char")).unwrap();
    // SAFETY: takes no pointers.
    if unsafe { libc::geteuid() } == 0 {
        // Permissions do not bind root; a folder that is a file does.
        fs::remove_file(&node).unwrap();
        fs::remove_dir(dev.0.join("infiniband")).unwrap();
        fs::write(dev.0.join("infiniband"), "").unwrap();
        assert_eq!(errno(null().open_below(&dev.0, 0, LONG)), libc::ENOTDIR);
    } else {
        assert_eq!(errno(null().open_below(&dev.0, 0, LONG)), libc::EACCES);
    }
}
