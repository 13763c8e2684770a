//! Options of datagram sockets. The kernel's UDP socket gets each first and
//! may refuse it; the sizes are those of the queue pairs.

use std::ffi::c_int;
use std::time::Duration;

use crate::abi::rsocket::{
    RDMA_INLINE, RDMA_IOMAPSIZE, RDMA_ROUTE, RDMA_RQSIZE, RDMA_SQSIZE, SOL_RDMA,
};
use crate::error::{Error, Result};

use super::super::option::{UNKNOWN, clip, duration, integer, timeval};
use super::super::settings::{Settings, buffer_from_option, short_from_option};
use super::super::wire::round_mappings;
use super::Datagram;
use super::endpoint::SLOT;

/// The options that the kernel does not keep.
#[derive(Debug)]
pub struct Options {
    settings: Settings,
}

impl Options {
    /// Those of a new socket.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
        }
    }

    /// The sizes to use from now on: as many datagrams as fit both the queues
    /// and the buffers.
    pub fn settle(&mut self) -> Settings {
        let fit = |queue: &mut u16, buffer: &mut u32| {
            let slots = *buffer / SLOT as u32;
            *queue = u16::try_from(slots)
                .unwrap_or(u16::MAX)
                .clamp(1, (*queue).max(1));
            if u32::from(*queue) < slots {
                *buffer = u32::from(*queue).saturating_mul(SLOT as u32);
            }
        };
        let settings = &mut self.settings;
        fit(&mut settings.send_queue, &mut settings.send_buffer);
        fit(&mut settings.receive_queue, &mut settings.receive_buffer);
        settings.clone()
    }
}

/// Sets an option. Does not block, but for sizes while an endpoint is made with them.
///
/// # Errors
/// `ENOTSUP` for an unknown one, `EINVAL` for a wrong length or value or too
/// late, else what the kernel says.
pub fn set(socket: &Datagram, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    if level == SOL_RDMA {
        return set_rdma(socket, name, value);
    }
    match (level, name) {
        (
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR
            | libc::SO_REUSEPORT
            | libc::SO_RCVBUF
            | libc::SO_SNDBUF
            | libc::SO_RCVTIMEO
            | libc::SO_SNDTIMEO
            | libc::SO_LINGER
            | libc::SO_KEEPALIVE
            | libc::SO_OOBINLINE
            | libc::SO_PRIORITY,
        )
        | (libc::IPPROTO_IP, libc::IP_TOS)
        | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY | libc::IPV6_TCLASS) => {}
        _ => return Err(UNKNOWN),
    }
    // SAFETY: a readable value of that length.
    let status = unsafe {
        libc::setsockopt(
            socket.descriptor(),
            level,
            name,
            value.as_ptr().cast(),
            u32::try_from(value.len()).unwrap_or(u32::MAX),
        )
    };
    if status != 0 {
        return Err(Error::last_os("set an option of a UDP socket"));
    }
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVBUF) if !socket.is_sized() => {
            socket.options().settings.receive_buffer = buffer_from_option(integer(value)?);
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF) if !socket.is_sized() => {
            socket.options().settings.send_buffer = buffer_from_option(integer(value)?);
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            socket.common().receive_timeout().set(duration(value)?)
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
            socket.common().send_timeout().set(duration(value)?)
        }
        _ => {}
    }
    Ok(())
}

fn set_rdma(socket: &Datagram, name: c_int, value: &[u8]) -> Result<()> {
    if socket.is_sized() {
        return Err(Error::invalid("set a size of a socket in use"));
    }
    let mut options = socket.options();
    let settings = &mut options.settings;
    match name {
        RDMA_SQSIZE => settings.send_queue = short_from_option(integer(value)?),
        RDMA_RQSIZE => settings.receive_queue = short_from_option(integer(value)?),
        RDMA_INLINE => settings.inline = short_from_option(integer(value)?),
        RDMA_IOMAPSIZE => settings.mappings = round_mappings(short_from_option(integer(value)?)),
        RDMA_ROUTE => {
            return Err(Error::new(
                libc::EOPNOTSUPP,
                "set the route of a socket with many peers",
            ));
        }
        _ => return Err(UNKNOWN),
    }
    Ok(())
}

/// The value of an option, as bytes for the program.
///
/// # Errors
/// `ENOTSUP` for an unknown one, else what the kernel says.
pub fn get(socket: &Datagram, level: c_int, name: c_int) -> Result<Vec<u8>> {
    let number = |value: c_int| Ok(value.to_ne_bytes().to_vec());
    let inline = socket.inline();
    let settings = socket.options().settings.clone();
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => number(socket.common().take_error()),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => number(clip(settings.receive_buffer)),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => number(clip(settings.send_buffer)),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            Ok(timeval(socket.common().receive_timeout().get()))
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => Ok(timeval(socket.common().send_timeout().get())),
        (SOL_RDMA, RDMA_SQSIZE) => number(settings.send_queue.into()),
        (SOL_RDMA, RDMA_RQSIZE) => number(settings.receive_queue.into()),
        (SOL_RDMA, RDMA_INLINE) => number(inline.map_or(settings.inline.into(), |inline| {
            c_int::try_from(inline).unwrap_or(c_int::MAX)
        })),
        (SOL_RDMA, RDMA_IOMAPSIZE) => number(settings.mappings.into()),
        (libc::SOL_SOCKET | libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => {
            kernel_value(socket, level, name)
        }
        _ => Err(UNKNOWN),
    }
}

fn kernel_value(socket: &Datagram, level: c_int, name: c_int) -> Result<Vec<u8>> {
    let mut value = vec![0; 64];
    let mut length = value.len() as u32;
    // SAFETY: a writable value of that length.
    let status = unsafe {
        libc::getsockopt(
            socket.descriptor(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if status != 0 {
        let error = Error::last_os("get an option of a UDP socket");
        return Err(if error.errno() == libc::ENOPROTOOPT {
            UNKNOWN
        } else {
            error
        });
    }
    value.truncate(length as usize);
    Ok(value)
}

/// How long close waits for what was sent to leave, if the program chose.
pub fn linger(socket: &Datagram) -> Option<Duration> {
    let value = kernel_value(socket, libc::SOL_SOCKET, libc::SO_LINGER).ok()?;
    let on = integer(&value).ok()? != 0;
    let seconds = integer(value.get(4..)?).ok()?;
    on.then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(queue: u16, buffer: u32) -> (u16, u32) {
        let settings = Settings {
            send_buffer: buffer,
            receive_buffer: 4096,
            send_queue: queue,
            receive_queue: 384,
            inline: 64,
            mappings: 0,
        };
        let settings = Options::new(&settings).settle();
        (settings.send_queue, settings.send_buffer)
    }

    #[test]
    fn queues_and_buffers_fit_each_other() {
        assert_eq!(settled(384, 131072), (64, 131072));
        assert_eq!(settled(16, 131072), (16, 32768));
        assert_eq!(settled(0, 4096), (1, 2048));
        assert_eq!(settled(65534, 1 << 30), (65534, 65534 << 11));
    }
}
