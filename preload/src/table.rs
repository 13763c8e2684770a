//! Which descriptors of the program have a socket over RDMA behind them, and
//! how many each such socket has. Looked up by every call, so without locks:
//! pages of slots, and books of pages, are allocated once and stay.
//!
//! A socket over RDMA is named by its own descriptor, which the program does
//! not know.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use once_cell::race::OnceBox;

use crate::inside;

/// Slots of a page.
const PAGE: usize = 1024;
/// Pages of a book.
const BOOK: usize = 1024;
/// As many as there can be numbers for.
const BOOKS: usize = (c_int::MAX as usize + 1) / (PAGE * BOOK);

/// What is known of a number, as a descriptor of the program and as one of a
/// socket over RDMA.
struct Slot {
    /// The socket behind it, plus 1; 0 for none.
    socket: AtomicI32,
    /// Descriptors of the program in front of it.
    references: AtomicU32,
    /// It connects, and nobody has been told how that ended.
    connecting: AtomicBool,
}

impl Slot {
    const fn blank() -> Self {
        Self {
            socket: AtomicI32::new(0),
            references: AtomicU32::new(0),
            connecting: AtomicBool::new(false),
        }
    }
}

type Page = OnceBox<[Slot; PAGE]>;

static TABLE: [OnceBox<[Page; BOOK]>; BOOKS] = [const { OnceBox::new() }; BOOKS];

/// Whether there has been a socket, so that other programs look for none.
static USED: AtomicBool = AtomicBool::new(false);

/// The process whose sockets the table has; 0 before the first.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Book, page and slot of a number; none of a negative one.
fn place(number: c_int) -> Option<(usize, usize, usize)> {
    let number = usize::try_from(number).ok()?;
    let page = number / PAGE;
    Some((page / BOOK, page % BOOK, number % PAGE))
}

fn slot(number: c_int) -> Option<&'static Slot> {
    let (book, page, slot) = place(number)?;
    TABLE.get(book)?.get()?.get(page)?.get()?.get(slot)
}

fn make_slot(number: c_int) -> Option<&'static Slot> {
    let (book, page, slot) = place(number)?;
    let book = TABLE.get(book)?;
    let book = book.get_or_init(|| Box::new([const { Page::new() }; BOOK]));
    book.get(page)?
        .get_or_init(|| Box::new([const { Slot::blank() }; PAGE]))
        .get(slot)
}

/// Whether there may be sockets at all.
pub fn is_used() -> bool {
    USED.load(Ordering::Acquire)
}

/// The socket over RDMA behind a descriptor. None for librdmacm itself, whose
/// descriptors may have numbers that the program closed behind our back.
pub fn find(fd: c_int) -> Option<c_int> {
    let socket = slot(fd)?.socket.load(Ordering::Acquire);
    (socket > 0 && !inside::is_inside()).then(|| socket.wrapping_sub(1))
}

/// Puts a socket behind a descriptor, one more if it is behind others already.
/// `false` if a number is negative.
pub fn insert(fd: c_int, socket: c_int) -> bool {
    let (Some(front), Some(back)) = (make_slot(fd), make_slot(socket)) else {
        return false;
    };
    if OWNER.load(Ordering::Acquire) == 0 {
        take_over();
    }
    USED.store(true, Ordering::Release);
    back.references.fetch_add(1, Ordering::AcqRel);
    front
        .socket
        .store(socket.saturating_add(1), Ordering::Release);
    true
}

/// What is not in the table any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The socket that was behind the descriptor.
    pub socket: c_int,
    /// No other descriptor has it.
    pub last: bool,
}

/// Takes a descriptor's socket away.
pub fn remove(fd: c_int) -> Option<Removed> {
    let found = slot(fd)?.socket.swap(0, Ordering::AcqRel);
    if found == 0 {
        return None;
    }
    let socket = found.wrapping_sub(1);
    let back = slot(socket)?;
    let last = back.references.fetch_sub(1, Ordering::AcqRel) == 1;
    if last {
        back.connecting.store(false, Ordering::Release);
    }
    Some(Removed { socket, last })
}

/// The descriptors from `first` to `last` that have a socket.
pub fn range(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let books = TABLE.iter().enumerate();
    let books = books.filter_map(|(book, pages)| Some((book * BOOK, pages.get()?)));
    let pages = books.flat_map(|(base, pages)| {
        let pages = pages.iter().enumerate();
        pages.map(move |(page, slots)| (base + page, slots))
    });
    let slots = pages.filter_map(|(page, slots)| Some((page * PAGE, slots.get()?)));
    slots
        .flat_map(|(base, slots)| {
            slots
                .iter()
                .enumerate()
                .map(move |(at, slot)| (base + at, slot))
        })
        .filter(|(_, slot)| slot.socket.load(Ordering::Acquire) > 0)
        .filter_map(|(number, _)| c_int::try_from(number).ok())
        .filter(move |fd| (first..=last).contains(&fd.cast_unsigned()))
}

/// Whether a socket connects, and the program waits to be told.
pub fn is_connecting(socket: c_int) -> bool {
    slot(socket).is_some_and(|slot| slot.connecting.load(Ordering::Acquire))
}

/// Sets [`is_connecting`].
pub fn set_connecting(socket: c_int, connecting: bool) {
    if let Some(slot) = slot(socket) {
        slot.connecting.store(connecting, Ordering::Release);
    }
}

/// The table is the calling process's. A child that nobody tells so leaves it alone.
pub fn take_over() {
    // SAFETY: no pointers.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Release);
}

/// Whether the calling process may change the table. The child of a `vfork(2)`,
/// which closes and duplicates descriptors of its own in its parent's memory,
/// may not.
pub fn is_ours() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    // SAFETY: no pointers.
    owner == 0 || owner == unsafe { libc::getpid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lives_as_long_as_its_descriptors() {
        assert!(insert(5000, 6000));
        assert!(insert(5001, 6000));
        assert_eq!(find(5000), Some(6000));
        // Other tests have sockets at the same time.
        assert_eq!(range(5000, 5999).collect::<Vec<_>>(), [5000, 5001]);
        assert_eq!(range(5001, 5001).collect::<Vec<_>>(), [5001]);
        set_connecting(6000, true);
        let removed = |socket, last| Some(Removed { socket, last });
        assert_eq!(remove(5000), removed(6000, false));
        assert!(is_connecting(6000));
        assert_eq!(remove(5000), None);
        assert_eq!(remove(5001), removed(6000, true));
        assert!(!is_connecting(6000));
        assert_eq!(find(5001), None);
    }

    #[test]
    fn any_number_is_known_or_not() {
        for fd in [-1, c_int::MIN] {
            assert_eq!(find(fd), None);
            assert_eq!(remove(fd), None);
            assert!(!insert(fd, 1));
        }
        for fd in [c_int::MAX, 1 << 20] {
            assert_eq!(find(fd), None);
            assert_eq!(remove(fd), None);
            assert!(insert(fd, 8000));
            assert_eq!(find(fd), Some(8000));
            assert!(range(fd.cast_unsigned(), u32::MAX).any(|found| found == fd));
        }
    }

    #[test]
    fn librdmacm_sees_no_sockets_over_rdma() {
        assert!(insert(7000, 7001));
        assert_eq!(inside::enter(|| find(7000)), None);
        assert_eq!(find(7000), Some(7001));
    }
}
