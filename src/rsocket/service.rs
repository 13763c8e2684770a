//! The service thread: handles what happens to sockets while their programs do
//! other things, and ends connections that a non-blocking close left behind.
//!
//! One thread per process, started when first needed, with all signals
//! blocked.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::fork::PerProcess;
use crate::kernel::epoll::Epoll;
use crate::thread;

use super::lingering::{self, EXIT_PATIENCE, Lingering};
use super::pauses::Pauses;
use super::socket::Socket;
use super::wake::Wake;
use super::watched::Registry;

pub use super::watched::{Next, Watched};

static SERVICE: PerProcess<Arc<Service>> = PerProcess::new();

/// Tag of the descriptor by which the thread is woken.
const WAKE: u64 = u64::MAX;
/// Bit of the tag of a completion channel.
const COMPLETIONS: u64 = 1 << 32;
/// Events taken at once.
const BATCH: usize = 64;

/// Tag of the descriptor of an object.
fn watched_tag(fd: RawFd) -> u64 {
    u64::from(fd.cast_unsigned())
}

struct Service {
    epoll: Epoll,
    wake: Wake,
    watched: Registry,
    lingering: Lingering,
}

fn service() -> Result<&'static Arc<Service>> {
    SERVICE.get_or_try_init(|| {
        let service = Arc::new(Service::new()?);
        let running = Arc::clone(&service);
        thread::spawn("rsocket", move || running.run())?;
        // The thread never ends.
        Ok(Box::leak(Box::new(service)))
    })
}

/// Sees to it that the thread runs, for what [`watch`] is to be called for later.
///
/// # Errors
/// What the start of the thread says.
pub fn start() -> Result<()> {
    service().map(drop)
}

/// Looks after `object` from now on whenever `fd` is readable.
///
/// # Errors
/// What `epoll_ctl(2)` or the start of the thread says.
pub fn watch<T: Watched + 'static>(fd: RawFd, object: &Arc<T>) -> Result<()> {
    let service = service()?;
    let object: Weak<T> = Arc::downgrade(object);
    let watch = || service.epoll.watch(fd, watched_tag(fd));
    service.watched.insert(fd, object, watch)
}

/// Undoes [`watch`], before the descriptor is closed.
pub fn forget<T: ?Sized>(fd: RawFd, object: *const T) {
    if let Some(service) = SERVICE.get() {
        let epoll = &service.epoll;
        service.watched.remove(fd, object, || epoll.forget(fd));
    }
}

/// Undoes [`watch`] and waits until the thread is not at `object` any more: what
/// it holds, an address above all, is free once the caller lets go as well. Not
/// for the service thread itself, nor with a lock that a handler takes.
pub fn release<T: ?Sized>(fd: RawFd, object: *const T) {
    forget(fd, object);
    if let Some(service) = SERVICE.get() {
        service.watched.wait_for_turn(object);
    }
}

/// Keeps a closed socket until it has ended or `deadline`. A process that ends
/// meanwhile waits for it a while.
pub fn linger(socket: Socket, deadline: Instant) {
    let Ok(service) = service() else {
        return;
    };
    let Some(notifier) = socket.notifier() else {
        return;
    };
    let fd = notifier.notification_fd();
    let tag = watched_tag(fd) | COMPLETIONS;
    if service.epoll.watch(fd, tag).is_ok() {
        notifier.arm();
        service.lingering.add(socket, deadline);
        service.wake.signal();
        lingering::wait_at_exit(wait_for_lingering);
    }
}

extern "C" fn wait_for_lingering() {
    if lingering::any_ever()
        && let Some(service) = SERVICE.get()
        && !service.lingering.wait(EXIT_PATIENCE)
    {
        log::warn!("the process ends before all that was sent has arrived");
    }
}

impl Service {
    fn new() -> Result<Self> {
        let service = Self {
            epoll: Epoll::new(true)?,
            wake: Wake::new()?,
            watched: Registry::default(),
            lingering: Lingering::default(),
        };
        service.epoll.watch(service.wake.as_raw_fd(), WAKE)?;
        Ok(service)
    }

    fn run(&self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let mut pauses = Pauses::default();
        loop {
            let timeout = self.timeout(&pauses);
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            for event in events.iter().take(count) {
                self.handle(event.u64, &mut pauses);
            }
            self.end_pauses(&mut pauses);
            self.end_lingering();
        }
    }

    /// Milliseconds to the next deadline, rounded up; -1 without one.
    fn timeout(&self, pauses: &Pauses) -> i32 {
        let ends = [self.lingering.next_deadline(), pauses.next_end()];
        let next = ends.into_iter().flatten().min();
        next.map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.saturating_add(Duration::from_micros(999));
            i32::try_from(left.as_millis()).unwrap_or(i32::MAX)
        })
    }

    fn handle(&self, tag: u64, pauses: &mut Pauses) {
        if tag == WAKE {
            self.wake.clear();
            return;
        }
        if tag & COMPLETIONS != 0 {
            return;
        }
        let fd = tag as u32 as RawFd;
        self.watched.handle(fd, pauses, || self.epoll.forget(fd));
    }

    fn end_pauses(&self, pauses: &mut Pauses) {
        if pauses.is_empty() {
            return;
        }
        let now = Instant::now();
        for (fd, object) in pauses.take_over(now) {
            let watch = || self.epoll.watch(fd, watched_tag(fd));
            if let Some(Err(error)) = self.watched.change(fd, &object, watch) {
                log::warn!("fd {fd} is not watched yet: {error}");
                pauses.begin(fd, object, now);
            }
        }
    }

    fn end_lingering(&self) {
        // Freeing a socket enters the kernel, so it happens without the lock.
        for socket in self.lingering.take_ended() {
            if let Some(notifier) = socket.notifier() {
                self.epoll.forget(notifier.notification_fd());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use super::*;

    struct Object;

    impl Watched for Object {
        fn handle(self: Arc<Self>, _: RawFd) -> Next {
            Next::Forget
        }
    }

    /// What is reported next, whatever number it has.
    fn reported(service: &Service) -> Option<u64> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1];
        let count = service.epoll.wait(&mut events, 0).unwrap();
        events.first().filter(|_| count > 0).map(|event| event.u64)
    }

    #[test]
    fn late_events_of_a_closed_descriptor_leave_what_has_its_number_alone() {
        let service = Service::new().unwrap();
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"x").unwrap();
        let fd = reader.as_raw_fd();
        let object = Arc::new(Object);
        let known: Weak<Object> = Arc::downgrade(&object);
        let watch = || service.epoll.watch(fd, watched_tag(fd));
        service.watched.insert(fd, known, watch).unwrap();
        let late = reported(&service).unwrap();
        let forget = || service.epoll.forget(fd);
        service.watched.remove(fd, Arc::as_ptr(&object), forget);
        assert_eq!(reported(&service), None);
        // A socket that lingers has a channel of the same number now.
        let lingering = watched_tag(fd) | COMPLETIONS;
        service.epoll.watch(fd, lingering).unwrap();
        service.handle(late, &mut Pauses::default());
        assert_eq!(reported(&service), Some(lingering));
    }
}
