//! The kernel's UDP socket behind a datagram socket: names, the side channel
//! and the choice of source addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::kernel::descriptor::opened;

use super::header::plain;

/// A UDP socket. Its descriptor is what programs know the datagram socket by.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    domain: i32,
}

impl Udp {
    /// A new one of the address family `domain`, unbound, which programs that
    /// this one starts do not get.
    ///
    /// # Errors
    /// What `socket(2)` says.
    pub fn new(domain: i32) -> Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; what it opens is nobody else's.
        let fd = unsafe { opened(libc::socket(domain, kind, 0), "create a UDP socket") }?;
        let socket = UdpSocket::from(fd);
        Ok(Self { socket, domain })
    }

    /// Its address family.
    pub fn domain(&self) -> i32 {
        self.domain
    }

    /// The address as this socket's family has it.
    pub fn native(&self, addr: SocketAddr) -> SocketAddr {
        match addr {
            SocketAddr::V4(v4) if self.domain == libc::AF_INET6 => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            _ => addr,
        }
    }

    /// Binds it.
    ///
    /// # Errors
    /// What `bind(2)` says.
    pub fn bind(&self, addr: SocketAddr) -> Result<()> {
        let addr = SockAddr::from(addr);
        // SAFETY: an address of that many bytes.
        let status = unsafe { libc::bind(self.as_raw_fd(), addr.as_ptr(), addr.byte_len() as u32) };
        if status != 0 {
            return Err(Error::last_os("bind a UDP socket"));
        }
        Ok(())
    }

    /// Binds it to any address and a free port.
    ///
    /// # Errors
    /// What `bind(2)` says.
    pub fn bind_any(&self) -> Result<()> {
        self.bind(match self.domain {
            libc::AF_INET => (Ipv4Addr::UNSPECIFIED, 0).into(),
            _ => (Ipv6Addr::UNSPECIFIED, 0).into(),
        })
    }

    /// Connects it.
    ///
    /// # Errors
    /// What `connect(2)` says.
    pub fn connect(&self, addr: SocketAddr) -> Result<()> {
        let addr = SockAddr::from(self.native(addr));
        // SAFETY: an address of that many bytes.
        let status =
            unsafe { libc::connect(self.as_raw_fd(), addr.as_ptr(), addr.byte_len() as u32) };
        if status != 0 {
            return Err(Error::last_os("connect a UDP socket"));
        }
        Ok(())
    }

    /// Undoes [`Udp::connect`]. The port stays, which peers know already; the
    /// kernel would give up one that it has chosen itself.
    ///
    /// # Errors
    /// What `connect(2)` says; `EADDRINUSE` if another socket takes the port
    /// meanwhile.
    pub fn disconnect(&self) -> Result<()> {
        let port = self.local()?.port();
        let nobody = libc::sockaddr {
            sa_family: libc::AF_UNSPEC as u16,
            sa_data: [0; 14],
        };
        let length = size_of::<libc::sockaddr>() as u32;
        // SAFETY: an address of that many bytes.
        if unsafe { libc::connect(self.as_raw_fd(), &nobody, length) } != 0 {
            return Err(Error::last_os("disconnect a UDP socket"));
        }
        let mut left = self.local()?;
        if left.port() != port {
            left.set_port(port);
            self.bind(left)?;
        }
        Ok(())
    }

    /// Its local address in its own family.
    ///
    /// # Errors
    /// What `getsockname(2)` says.
    pub fn local(&self) -> Result<SocketAddr> {
        self.socket
            .local_addr()
            .map_err(|error| Error::from_io(&error, "name a UDP socket"))
    }

    /// Its peer's address in its own family.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer(&self) -> Result<SocketAddr> {
        self.socket
            .peer_addr()
            .map_err(|error| Error::from_io(&error, "name the peer of a UDP socket"))
    }

    /// Sends a packet to `dest`; waits for room unless `nonblocking`.
    ///
    /// # Errors
    /// `EAGAIN`, else what `sendto(2)` says.
    pub fn send(&self, packet: &[u8], dest: SocketAddr, nonblocking: bool) -> Result<()> {
        let dest = SockAddr::from(self.native(dest));
        let flags = libc::MSG_NOSIGNAL | if nonblocking { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: a readable packet and an address of that many bytes.
        let sent = unsafe {
            libc::sendto(
                self.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                flags,
                dest.as_ptr(),
                dest.byte_len() as u32,
            )
        };
        if sent < 0 {
            return Err(Error::last_os("send on the side channel"));
        }
        Ok(())
    }

    /// Takes a packet: its bytes and who sent it. `None` if there is no
    /// packet, or one that does not fit.
    ///
    /// # Errors
    /// `EAGAIN` if there is none, else what the network said of an earlier
    /// packet.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<(&'a [u8], SocketAddr)>> {
        // SAFETY: plain numbers, for which zero is valid.
        let mut source: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_storage>() as u32;
        // SAFETY: buffer and address are writable for the given lengths.
        let received = unsafe {
            libc::recvfrom(
                self.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                (&raw mut source).cast(),
                &mut length,
            )
        };
        let received =
            usize::try_from(received).map_err(|_| Error::last_os("receive on the side channel"))?;
        let source = SockAddr::from_storage(&source).and_then(|addr| addr.to_socket_addr());
        Ok(buffer.get(..received).zip(source.map(plain)))
    }

    /// The local address from which `dest` is reached, with this socket's
    /// port, which it has been bound to.
    ///
    /// # Errors
    /// `ENETUNREACH`, else what the kernel says.
    pub fn source_for(&self, dest: SocketAddr) -> Result<SocketAddr> {
        let own = plain(self.local()?);
        if !own.ip().is_unspecified() && !own.ip().is_loopback() {
            return Ok(own);
        }
        let probe = Self::new(if dest.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        })?;
        probe.connect(dest)?;
        let mut source = plain(probe.local()?);
        source.set_port(own.port());
        Ok(source)
    }
}

impl AsRawFd for Udp {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(domain: i32, addr: &str) -> Udp {
        let udp = Udp::new(domain).unwrap();
        udp.bind(addr.parse().unwrap()).unwrap();
        udp
    }

    #[test]
    fn packets_name_their_source_whatever_the_families() {
        let six = Udp::new(libc::AF_INET6).unwrap();
        six.bind_any().unwrap();
        let four = bound(libc::AF_INET, "127.0.0.1:0");
        let mut dest = plain(four.local().unwrap());
        six.send(b"one", dest, false).unwrap();
        let mut buffer = [0; 16];
        let (packet, source) = four.receive(&mut buffer).unwrap().unwrap();
        assert_eq!((packet, source.ip()), (&b"one"[..], dest.ip()));
        four.send(b"two", source, false).unwrap();
        let (_, source) = six.receive(&mut buffer).unwrap().unwrap();
        assert_eq!(source, dest);
        let found = six.source_for(dest).unwrap();
        dest.set_port(plain(six.local().unwrap()).port());
        assert_eq!(found, dest);
    }

    #[test]
    fn a_port_survives_the_end_of_a_connection() {
        for (domain, addr) in [
            (libc::AF_INET, "0.0.0.0:0"),
            (libc::AF_INET, "127.0.0.1:0"),
            (libc::AF_INET6, "[::]:0"),
        ] {
            let udp = bound(domain, addr);
            let name = udp.local().unwrap();
            for _ in 0..2 {
                let peer = bound(libc::AF_INET, "127.0.0.1:0");
                udp.connect(peer.local().unwrap()).unwrap();
                udp.disconnect().unwrap();
                assert_eq!(udp.local(), Ok(name));
            }
        }
    }

    #[test]
    fn packets_that_do_not_fit_are_passed_over() {
        let udp = bound(libc::AF_INET, "127.0.0.1:0");
        udp.send(&[0; 20], udp.local().unwrap(), false).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(udp.receive(&mut buffer), Ok(None));
        let errno = udp.receive(&mut buffer).map_err(|error| error.errno());
        assert_eq!(errno, Err(libc::EAGAIN));
    }
}
