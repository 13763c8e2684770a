//! Closed sockets whose connections still end, in the background: what they
//! sent is on its way. They are kept here until it has arrived or their time is
//! over; the service thread looks after them. The process's end waits for them
//! for a while, as the kernel will not send what is left here.

use std::time::{Duration, Instant};

use crate::fork;
use crate::lock::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::lock::{Condvar, Mutex, locked};

use super::socket::Socket;

/// How long the end of the process waits, as long as a blocking close does.
pub const EXIT_PATIENCE: Duration = Duration::from_secs(10);

/// The sockets, each with the end of its time.
#[derive(Default)]
pub struct Lingering {
    sockets: Mutex<Vec<(Socket, Instant)>>,
    fewer: Condvar,
}

impl Lingering {
    /// Keeps a socket until it has ended or `deadline`.
    pub fn add(&self, socket: Socket, deadline: Instant) {
        locked(&self.sockets).push((socket, deadline));
    }

    /// When the time of the first one is over.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sockets = locked(&self.sockets);
        sockets.iter().map(|(_, deadline)| *deadline).min()
    }

    /// Takes those that have ended or whose time is over; the next completion
    /// of the others will wake who sleeps on them.
    pub fn take_ended(&self) -> Vec<Socket> {
        let mut ended = Vec::new();
        let mut sockets = locked(&self.sockets);
        if sockets.is_empty() {
            return ended;
        }
        let now = Instant::now();
        let mut place = 0;
        while let Some((socket, deadline)) = sockets.get(place) {
            if let Some(notifier) = socket.notifier() {
                notifier.take_notification();
                notifier.arm();
            }
            if socket.has_ended() || *deadline <= now {
                ended.push(sockets.swap_remove(place).0);
            } else {
                place += 1;
            }
        }
        drop(sockets);
        self.fewer.notify_all();
        ended
    }

    /// Waits until there are none, at most for `patience`. Returns whether that
    /// is so.
    pub fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now().checked_add(patience);
        let mut sockets = locked(&self.sockets);
        while !sockets.is_empty() {
            let left = deadline.map_or(patience, |end| {
                end.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return false;
            }
            (sockets, _) = self.fewer.wait_timeout(sockets, left);
        }
        true
    }
}

/// The generation of the process that had such sockets last. The locks of a
/// parent may be held for ever in its child, so a child that had none is not to
/// look.
static LEFT_IN: AtomicU32 = AtomicU32::new(u32::MAX);

/// Whether this process, and not a parent, has ever had such sockets. Takes no
/// lock.
pub fn any_ever() -> bool {
    LEFT_IN.load(Ordering::Relaxed) == fork::generation()
}

/// Notes that this process has such sockets, and has `wait` called when it ends
/// by `exit(3)` or a return from `main`.
pub fn wait_at_exit(wait: extern "C" fn()) {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    LEFT_IN.store(fork::generation(), Ordering::Relaxed);
    if REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the library is never unloaded, see build.rs, so the function is there
    // when it is called.
    if unsafe { libc::atexit(wait) } != 0 {
        log::warn!("what is on its way when the process ends may be lost");
    }
}
