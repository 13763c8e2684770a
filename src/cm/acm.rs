//! The client of the ibacm daemon, which knows routes in InfiniBand networks.
//!
//! One request and one reply travel on a stream socket. The daemon is optional
//! and everything it says is checked: any trouble with it means that there is
//! no answer, and the kernel is asked instead. Ports that are not InfiniBand
//! have no use for it and it is not asked.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::AF_IB;
use crate::error::{Error, Result};
use crate::kernel::addr::{AF_INET, AF_INET6, SockAddr};
use crate::kernel::plain::Plain;
use crate::kernel::uverbs::PathData;

use super::addrinfo::Hints;
use super::device::{self, LinkLayer};
use super::id::Id;

const HEADER_LEN: usize = 16;
const ENTRY_LEN: usize = 72;
const MAX_ENTRIES: usize = 8;
const MAX_MESSAGE: usize = HEADER_LEN + MAX_ENTRIES * ENTRY_LEN;
const RECORD_LEN: usize = 64;

const VERSION: u8 = 1;
const OPERATION_RESOLVE: u8 = 1;
const STATUS_SUCCESS: u8 = 0;

const TYPE_IPV4: u16 = 2;
const TYPE_IPV6: u16 = 3;
const TYPE_PATH: u16 = 0x10;

const FLAG_SOURCE: u32 = 1;
const FLAG_DESTINATION: u32 = 2;
const FLAG_NO_DELAY: u32 = 1 << 30;

/// Offsets of the GIDs in a path record on the wire.
const RECORD_DGID: usize = 8;
const RECORD_SGID: usize = 24;

static DAEMON: Daemon<'static> = Daemon {
    port_file: "/run/ibacm.port",
    socket: "/run/ibacm.sock",
    patience: Duration::from_secs(2),
    idle: Mutex::new(None),
};

/// What the daemon knows.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Local address from which the destination is reached.
    pub src: Option<SockAddr>,
    /// The route; at least one path.
    pub paths: Vec<PathData>,
}

/// The route between the identifier's addresses, if it is bound to an
/// InfiniBand port and the daemon knows one. Blocks for at most about two
/// seconds.
pub fn route(id: &Id) -> Option<Vec<PathData>> {
    let device = id.device()?;
    if device.link_layer(id.port_num()) != LinkLayer::InfiniBand {
        return None;
    }
    let request = encode(&Question {
        src: id.src_addr().as_ref(),
        dst: id.dst_addr().as_ref(),
        ..Question::default()
    })?;
    let answer = DAEMON.ask(&request).inspect_err(explain).ok()?;
    (!answer.paths.is_empty()).then_some(answer.paths)
}

/// What the daemon knows of reaching `dst`, if the machine has an InfiniBand
/// port. Blocks for at most about two seconds.
pub fn lookup(
    src: Option<&SockAddr>,
    dst: Option<&SockAddr>,
    hints: Option<&Hints>,
) -> Option<Answer> {
    // Cheap before dear: looking at link layers opens the devices.
    if !DAEMON.is_installed() || !device::any_infiniband_port() {
        return None;
    }
    let request = encode(&Question {
        src,
        dst,
        no_delay: hints.is_some_and(Hints::wants_no_delay),
        path: hints.and_then(|hints| hints.path),
    })?;
    DAEMON.ask(&request).inspect_err(explain).ok()
}

fn explain(error: &Error) {
    log::info!("no answer from ibacm: {error}");
}

/// What the daemon is asked.
#[derive(Clone, Copy, Debug, Default)]
struct Question<'a> {
    src: Option<&'a SockAddr>,
    dst: Option<&'a SockAddr>,
    /// Only what the daemon knows already.
    no_delay: bool,
    /// Path record that restricts the route.
    path: Option<[u8; RECORD_LEN]>,
}

/// The request for a question; `None` if there is nothing to ask.
fn encode(question: &Question<'_>) -> Option<Vec<u8>> {
    let mut message = vec![0; HEADER_LEN];
    let no_delay = if question.no_delay { FLAG_NO_DELAY } else { 0 };
    put_address(&mut message, question.src, FLAG_SOURCE);
    put_address(&mut message, question.dst, FLAG_DESTINATION | no_delay);
    put_path(&mut message, question);
    if message.len() == HEADER_LEN {
        return None;
    }
    let length = u16::try_from(message.len()).ok()?.to_ne_bytes();
    let head = [VERSION, OPERATION_RESOLVE, 0, 0, 0, 0, length[0], length[1]];
    message.splice(..head.len(), head);
    Some(message)
}

fn put_address(message: &mut Vec<u8>, address: Option<&SockAddr>, flags: u32) {
    let Some(address) = address else { return };
    let gid = address.gid();
    match address.family() {
        // The last four bytes of the mapped form are the IPv4 address.
        AF_INET => put_entry(message, flags, TYPE_IPV4, gid.split_at(12).1),
        AF_INET6 => put_entry(message, flags, TYPE_IPV6, &gid),
        _ => {}
    }
}

/// Adds the path entry, which carries InfiniBand addresses and restrictions.
fn put_path(message: &mut Vec<u8>, question: &Question<'_>) {
    let gid_of = |address: Option<&SockAddr>| {
        address
            .filter(|address| c_int::from(address.family()) == AF_IB)
            .map(SockAddr::gid)
    };
    let (sgid, dgid) = (gid_of(question.src), gid_of(question.dst));
    if question.path.is_none() && sgid.is_none() && dgid.is_none() {
        return;
    }
    let mut record = question.path.unwrap_or([0; RECORD_LEN]);
    for (offset, gid) in [(RECORD_SGID, sgid), (RECORD_DGID, dgid)] {
        let Some(gid) = gid else { continue };
        for (to, from) in record.iter_mut().skip(offset).zip(gid) {
            *to = from;
        }
    }
    put_entry(message, 0, TYPE_PATH, &record);
}

fn put_entry(message: &mut Vec<u8>, flags: u32, kind: u16, info: &[u8]) {
    let end = message.len().saturating_add(ENTRY_LEN);
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&[0; 2]);
    message.extend_from_slice(info);
    message.resize(end, 0);
}

/// Length of the whole reply that starts with `header`.
fn reply_length(header: &[u8; HEADER_LEN]) -> Result<usize> {
    let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
    let entries = length.checked_sub(HEADER_LEN).ok_or(malformed())?;
    if length > MAX_MESSAGE || !entries.is_multiple_of(ENTRY_LEN) {
        return Err(malformed());
    }
    Ok(length)
}

const fn malformed() -> Error {
    Error::new(libc::EBADMSG, "read the reply of ibacm")
}

/// Reads a whole reply. Pure, so that any bytes can be tried on it.
///
/// # Errors
/// `EBADMSG` if the reply is malformed, `ENOENT` if the daemon knows nothing.
pub fn decode(reply: &[u8]) -> Result<Answer> {
    let (header, entries) = reply.split_first_chunk::<HEADER_LEN>().ok_or(malformed())?;
    if reply_length(header)? != reply.len() {
        return Err(malformed());
    }
    if header[2] != STATUS_SUCCESS {
        return Err(Error::new(libc::ENOENT, "ask ibacm: it knows no answer"));
    }
    let mut answer = Answer::default();
    for entry in entries.chunks_exact(ENTRY_LEN) {
        let Some((head, info)) = entry.split_first_chunk::<8>() else {
            continue;
        };
        let flags = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if kind == TYPE_PATH {
            answer.paths.push(path_data(flags, info));
        } else if flags & FLAG_SOURCE != 0 {
            answer.src = answer.src.or_else(|| source(kind, info));
        }
    }
    Ok(answer)
}

fn path_data(flags: u32, record: &[u8]) -> PathData {
    let bytes = [&flags.to_ne_bytes(), &[0; 4], record].concat();
    PathData::from_prefix(&bytes)
}

fn source(kind: u16, info: &[u8]) -> Option<SockAddr> {
    match kind {
        TYPE_IPV4 => {
            let octets: [u8; 4] = *info.first_chunk()?;
            Some(SockAddr::v4(octets.into(), 0))
        }
        TYPE_IPV6 => {
            let octets: [u8; 16] = *info.first_chunk()?;
            Some(SockAddr::v6(octets.into(), 0, 0))
        }
        _ => None,
    }
}

/// Where the daemon is, and the connection to it.
struct Daemon<'a> {
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

impl Daemon<'_> {
    /// Whether there are traces of the daemon; it may be dead all the same.
    fn is_installed(&self) -> bool {
        Path::new(self.socket).exists() || Path::new(self.port_file).exists()
    }

    fn ask(&self, request: &[u8]) -> Result<Answer> {
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
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
        // SAFETY: socket is always sound to call.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::last_os(STEP_CONNECT));
        }
        // SAFETY: a fresh descriptor of ours.
        let stream = Self(unsafe { OwnedFd::from_raw_fd(fd) });
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
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread;

    fn v4(last: u8) -> SockAddr {
        SockAddr::v4(Ipv4Addr::new(10, 0, 0, last), 7174)
    }

    fn reply(status: u8, entries: &[[u8; ENTRY_LEN]]) -> Vec<u8> {
        let length = (HEADER_LEN + entries.len() * ENTRY_LEN) as u16;
        let mut message = vec![0; HEADER_LEN];
        message[0] = VERSION;
        message[1] = OPERATION_RESOLVE | 0x80;
        message[2] = status;
        message[6..8].copy_from_slice(&length.to_ne_bytes());
        message.extend(entries.concat());
        message
    }

    fn entry(flags: u32, kind: u16, info: &[u8]) -> [u8; ENTRY_LEN] {
        let mut bytes = Vec::new();
        put_entry(&mut bytes, flags, kind, info);
        bytes.try_into().unwrap_or([0; ENTRY_LEN])
    }

    fn errno<T>(result: Result<T>) -> Option<i32> {
        result.err().map(|error| error.errno())
    }

    #[test]
    fn a_question_about_ip_addresses_has_two_entries() {
        let (src, dst) = (v4(1), v4(2));
        let question = Question {
            src: Some(&src),
            dst: Some(&dst),
            no_delay: true,
            path: None,
        };
        let message = encode(&question).unwrap_or_default();
        assert_eq!(message.len(), HEADER_LEN + 2 * ENTRY_LEN);
        assert_eq!(message[..4], [1, 1, 0, 0]);
        assert_eq!(message[6..8], 160u16.to_ne_bytes());
        assert_eq!(
            message[16..],
            [
                entry(FLAG_SOURCE, TYPE_IPV4, &[10, 0, 0, 1]),
                entry(FLAG_DESTINATION | FLAG_NO_DELAY, TYPE_IPV4, &[10, 0, 0, 2]),
            ]
            .concat()
        );
    }

    #[test]
    fn gids_go_into_the_path_record() {
        let dst = SockAddr::ib(0xFFFF, 0, [9; 16], 1, 1);
        let message = encode(&Question {
            dst: Some(&dst),
            path: Some([3; RECORD_LEN]),
            ..Question::default()
        });
        let mut record = [3; RECORD_LEN];
        record[8..24].copy_from_slice(&[9; 16]);
        assert_eq!(
            message.unwrap_or_default()[16..],
            entry(0, TYPE_PATH, &record)
        );
        assert_eq!(encode(&Question::default()), None);
    }

    #[test]
    fn paths_and_source_are_read() {
        let record = [7; RECORD_LEN];
        let message = reply(
            0,
            &[
                entry(FLAG_SOURCE, TYPE_IPV6, &[1; 16]),
                entry(FLAG_DESTINATION, TYPE_IPV4, &[10, 0, 0, 2]),
                entry(0x2B, TYPE_PATH, &record),
            ],
        );
        let answer = decode(&message).unwrap_or_default();
        assert_eq!(answer.src, Some(SockAddr::v6([1; 16].into(), 0, 0)));
        assert_eq!(answer.paths.len(), 1);
        let bytes = answer.paths[0].as_bytes();
        assert_eq!(bytes[..8], [0x2B, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..], record);
    }

    #[test]
    fn a_wrong_length_or_status_is_no_answer() {
        let good = reply(0, &[entry(0, TYPE_PATH, &[0; 64])]);
        assert_eq!(errno(decode(&good[..good.len() - 1])), Some(libc::EBADMSG));
        assert_eq!(
            errno(decode(&[good, vec![0]].concat())),
            Some(libc::EBADMSG)
        );
        assert_eq!(errno(decode(&[])), Some(libc::EBADMSG));
        assert_eq!(errno(decode(&reply(5, &[]))), Some(libc::ENOENT));
        let too_many = [[0; ENTRY_LEN]; MAX_ENTRIES + 1];
        assert_eq!(errno(decode(&reply(0, &too_many))), Some(libc::EBADMSG));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            if let Ok(answer) = decode(&bytes) {
                prop_assert!(answer.paths.len() <= MAX_ENTRIES);
            }
        }

        #[test]
        fn well_formed_replies_are_decoded(
            entries in prop::collection::vec(any::<[[u8; 24]; 3]>(), 0..=MAX_ENTRIES),
        ) {
            let entries: Vec<[u8; ENTRY_LEN]> = entries
                .iter()
                .map(|parts| parts.concat().try_into().unwrap_or([0; ENTRY_LEN]))
                .collect();
            let paths = entries
                .iter()
                .filter(|entry| entry[4..6] == TYPE_PATH.to_ne_bytes())
                .count();
            let answer = decode(&reply(0, &entries));
            prop_assert_eq!(answer.map(|answer| answer.paths.len()), Ok(paths));
        }
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
        let mut request = [0; HEADER_LEN + 2 * ENTRY_LEN];
        assert!(stream.read_exact(&mut request).is_ok());
        let message = reply(0, &[entry(0, TYPE_PATH, &[mark; RECORD_LEN])]);
        let (first, second) = message.split_at(21);
        assert!(stream.write_all(first).is_ok());
        assert!(stream.write_all(second).is_ok());
    }

    fn mark(answer: Result<Answer>) -> Option<u8> {
        let paths = answer.ok()?.paths;
        paths.first()?.as_bytes().last().copied()
    }

    fn request() -> Vec<u8> {
        let (src, dst) = (v4(1), v4(2));
        encode(&Question {
            src: Some(&src),
            dst: Some(&dst),
            ..Question::default()
        })
        .unwrap_or_default()
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
            let mut request = [0; HEADER_LEN + 2 * ENTRY_LEN];
            assert!(stream.read_exact(&mut request).is_ok());
            let message = reply(0, &[entry(0, TYPE_PATH, &[8; RECORD_LEN])]);
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
