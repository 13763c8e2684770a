//! The connection to the ibacm daemon: a stream socket on which one request
//! and one reply travel at a time.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::fork::{AcrossFork, Held};
use crate::kernel::descriptor::opened;
use crate::lock::{Mutex, MutexGuard, locked};

use super::message::{Answer, HEADER_LEN, MAX_MESSAGE, decode, malformed, reply_length};

/// The daemon of this machine.
pub static DAEMON: Daemon<'static> = Daemon {
    port_file: "/run/ibacm.port",
    socket: "/run/ibacm.sock",
    patience: Duration::from_secs(2),
    idle: Mutex::new(None),
};

/// Where the daemon is, and the connection to it.
pub struct Daemon<'a> {
    /// File with the TCP port at which the daemon listens on the loopback
    /// address; if it is missing or holds no port, the socket is used.
    port_file: &'a str,
    /// Unix socket of the daemon.
    socket: &'a str,
    /// How long an answer may take, from connecting on.
    patience: Duration,
    /// A connection that nobody uses now, and the process that made it: a
    /// forked child must not share it. It is taken out for the time of a
    /// request, so nobody waits for another's answer.
    idle: Mutex<Option<(u32, Stream)>>,
}

impl AcrossFork for Daemon<'static> {
    fn hold(&'static self) -> Held {
        self.idle.hold()
    }
}

impl Daemon<'_> {
    /// Whether there are traces of the daemon; it may be dead all the same.
    pub fn is_installed(&self) -> bool {
        Path::new(self.socket).exists() || Path::new(self.port_file).exists()
    }

    /// Sends `request` and returns the answer to it. Blocks no longer than the
    /// daemon's time limit.
    ///
    /// # Errors
    /// As for [`decode`]; `ETIMEDOUT`, or what the socket says.
    pub fn ask(&self, request: &[u8]) -> Result<Answer> {
        let deadline = Instant::now() + self.patience;
        if let Some(stream) = self.take_idle() {
            match self.exchange(stream, request, deadline) {
                Err(error) if is_loss(&error) => {
                    log::debug!("ibacm: connection lost, connecting again");
                }
                result => return result,
            }
        }
        let stream = self.connect(deadline)?;
        self.exchange(stream, request, deadline)
    }

    fn take_idle(&self) -> Option<Stream> {
        let (owner, stream) = self.idle().take()?;
        (owner == process::id()).then_some(stream)
    }

    fn idle(&self) -> MutexGuard<'_, Option<(u32, Stream)>> {
        locked(&self.idle)
    }

    /// Sends the request and reads the reply. Only a connection on which both
    /// went well is kept.
    fn exchange(&self, stream: Stream, request: &[u8], deadline: Instant) -> Result<Answer> {
        stream.send(request, deadline)?;
        let mut reply = [0; MAX_MESSAGE];
        let (header, rest) = reply
            .split_first_chunk_mut::<HEADER_LEN>()
            .ok_or(malformed())?;
        stream.receive(header, deadline)?;
        let length = reply_length(header)?;
        let body = rest
            .get_mut(..length.saturating_sub(HEADER_LEN))
            .ok_or(malformed())?;
        stream.receive(body, deadline)?;
        *self.idle() = Some((process::id(), stream));
        decode(reply.get(..length).ok_or(malformed())?)
    }

    fn connect(&self, deadline: Instant) -> Result<Stream> {
        match self.port() {
            Some(port) => Stream::to_port(port, deadline),
            None => Stream::to_socket(self.socket, deadline),
        }
    }

    fn port(&self) -> Option<u16> {
        let text = fs::read_to_string(self.port_file).ok()?;
        text.trim().parse().ok().filter(|port| *port != 0)
    }
}

/// Whether the daemon closed the connection, for instance by restarting.
fn is_loss(error: &Error) -> bool {
    matches!(
        error.errno(),
        libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN
    )
}

/// A connection to the daemon.
struct Stream(OwnedFd);

const STEP_CONNECT: &str = "connect to ibacm";
const STEP_SEND: &str = "send to ibacm";
const STEP_RECEIVE: &str = "receive from ibacm";

impl Stream {
    fn to_port(port: u16, deadline: Instant) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpStream::connect_timeout(&address, remaining(deadline, STEP_CONNECT)?)
            .map(|stream| Self(stream.into()))
            .map_err(|error| Error::from_io(&error, STEP_CONNECT))
    }

    fn to_socket(path: &str, deadline: Instant) -> Result<Self> {
        // SAFETY: plain data for which zero is valid.
        let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        if path.len() >= address.sun_path.len() {
            return Err(Error::new(libc::ENAMETOOLONG, STEP_CONNECT));
        }
        for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
            *to = from as _;
        }
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; what it opens is nobody else's.
        let stream = unsafe { opened(libc::socket(libc::AF_UNIX, kind, 0), STEP_CONNECT) };
        let stream = Self(stream?);
        let fd = stream.0.as_raw_fd();
        // A daemon that does not take connections would block us.
        stream.limit(libc::SO_SNDTIMEO, deadline, STEP_CONNECT)?;
        let length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: an initialised address of that length.
        let status = unsafe { libc::connect(fd, (&raw const address).cast(), length) };
        if status != 0 {
            return Err(Error::last_os(STEP_CONNECT));
        }
        Ok(stream)
    }

    /// Sends all of `data`; a daemon that is gone raises no signal.
    fn send(&self, mut data: &[u8], deadline: Instant) -> Result<()> {
        while !data.is_empty() {
            self.limit(libc::SO_SNDTIMEO, deadline, STEP_SEND)?;
            let fd = self.0.as_raw_fd();
            // SAFETY: the buffer is readable for its length.
            let sent =
                unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), libc::MSG_NOSIGNAL) };
            data = data.get(progress(sent, STEP_SEND)?..).unwrap_or_default();
        }
        Ok(())
    }

    /// Fills `buffer`.
    fn receive(&self, mut buffer: &mut [u8], deadline: Instant) -> Result<()> {
        while !buffer.is_empty() {
            self.limit(libc::SO_RCVTIMEO, deadline, STEP_RECEIVE)?;
            let fd = self.0.as_raw_fd();
            // SAFETY: the buffer is writable for its length.
            let received = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            if received == 0 {
                return Err(Error::new(libc::ECONNRESET, STEP_RECEIVE));
            }
            buffer = buffer
                .get_mut(progress(received, STEP_RECEIVE)?..)
                .unwrap_or_default();
        }
        Ok(())
    }

    /// Makes the next operation end at the deadline.
    fn limit(&self, option: c_int, deadline: Instant, step: &'static str) -> Result<()> {
        let time = remaining(deadline, step)?;
        let time = libc::timeval {
            tv_sec: time.as_secs() as libc::time_t,
            tv_usec: time.subsec_micros() as libc::suseconds_t,
        };
        // SAFETY: an initialised value of that length.
        let status = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                mem::size_of_val(&time) as libc::socklen_t,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(Error::last_os(step))
        }
    }
}

/// The time until the deadline: at least a microsecond, since zero would mean
/// for ever.
fn remaining(deadline: Instant, step: &'static str) -> Result<Duration> {
    let time = deadline.saturating_duration_since(Instant::now());
    if time < Duration::from_micros(1) {
        return Err(Error::new(libc::ETIMEDOUT, step));
    }
    Ok(time)
}

/// How many bytes went through; an interruption is no failure.
fn progress(result: isize, step: &'static str) -> Result<usize> {
    usize::try_from(result).or_else(|_| {
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(0),
            Some(libc::EAGAIN) => Err(Error::new(libc::ETIMEDOUT, step)),
            _ => Err(Error::from_io(&error, step)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::samples::{REQUEST_LEN, path, reply, request};
    use super::*;
    use crate::kernel::plain::Plain;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread;

    fn errno<T>(result: Result<T>) -> Option<i32> {
        result.err().map(|error| error.errno())
    }

    /// A folder for the sockets of one test.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rdmacm-{}-{name}", std::process::id()));
            assert!(fs::create_dir_all(&path).is_ok());
            Self(path)
        }

        fn file(&self, name: &str) -> String {
            self.0.join(name).to_string_lossy().into_owned()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn daemon<'a>(port_file: &'a str, socket: &'a str, patience: u64) -> Daemon<'a> {
        Daemon {
            port_file,
            socket,
            patience: Duration::from_millis(patience),
            idle: Mutex::new(None),
        }
    }

    /// Reads one request and answers with a path whose bytes are `mark`, in
    /// two pieces.
    fn serve(stream: &mut UnixStream, mark: u8) {
        let mut request = [0; REQUEST_LEN];
        assert!(stream.read_exact(&mut request).is_ok());
        let message = reply(0, &[path(mark)]);
        let (first, second) = message.split_at(21);
        assert!(stream.write_all(first).is_ok());
        assert!(stream.write_all(second).is_ok());
    }

    fn mark(answer: Result<Answer>) -> Option<u8> {
        let paths = answer.ok()?.paths;
        paths.first()?.as_bytes().last().copied()
    }

    #[test]
    fn one_connection_serves_many_questions_and_is_replaced_when_lost() {
        let folder = Folder::new("acm-reconnect");
        let (port, socket) = (folder.file("port"), folder.file("sock"));
        let listener = match UnixListener::bind(&socket) {
            Ok(listener) => listener,
            Err(error) => panic!("{error}"),
        };
        let server = thread::spawn(move || {
            for round in 0..2 {
                let Ok((mut stream, _)) = listener.accept() else {
                    return;
                };
                serve(&mut stream, round * 2);
                serve(&mut stream, round * 2 + 1);
            }
        });
        let daemon = daemon(&port, &socket, 10_000);
        for expected in 0..4 {
            assert_eq!(mark(daemon.ask(&request())), Some(expected));
        }
        assert!(server.join().is_ok());
    }

    #[test]
    fn the_port_file_leads_to_a_tcp_daemon() {
        let folder = Folder::new("acm-tcp");
        let (port, socket) = (folder.file("port"), folder.file("sock"));
        let listener = match std::net::TcpListener::bind("127.0.0.1:0") {
            Ok(listener) => listener,
            Err(error) => panic!("{error}"),
        };
        let number = listener.local_addr().map(|address| address.port());
        assert!(fs::write(&port, format!("{}\n", number.unwrap_or(0))).is_ok());
        let server = thread::spawn(move || {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let mut request = [0; REQUEST_LEN];
            assert!(stream.read_exact(&mut request).is_ok());
            let message = reply(0, &[path(8)]);
            assert!(stream.write_all(&message).is_ok());
        });
        let daemon = daemon(&port, &socket, 10_000);
        assert!(daemon.is_installed());
        assert_eq!(mark(daemon.ask(&request())), Some(8));
        assert!(server.join().is_ok());
    }

    #[test]
    fn a_silent_daemon_is_given_up() {
        let folder = Folder::new("acm-silent");
        let (port, socket) = (folder.file("port"), folder.file("sock"));
        let _listener = UnixListener::bind(&socket);
        let daemon = daemon(&port, &socket, 50);
        assert_eq!(errno(daemon.ask(&request())), Some(libc::ETIMEDOUT));
    }

    #[test]
    fn no_daemon_is_no_answer() {
        let folder = Folder::new("acm-none");
        let (port, socket) = (folder.file("port"), folder.file("sock"));
        let daemon = daemon(&port, &socket, 1000);
        assert!(!daemon.is_installed());
        assert_eq!(errno(daemon.ask(&request())), Some(libc::ENOENT));
    }
}
