//! Options of stream sockets: `rsetsockopt` and `rgetsockopt`, decoded from
//! and encoded to bytes.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use crate::abi::rsocket::{
    RDMA_INLINE, RDMA_IOMAPSIZE, RDMA_ROUTE, RDMA_RQSIZE, RDMA_SQSIZE, SOL_RDMA,
};
use crate::abi::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS,
};
use crate::cm::id::Id;
use crate::cm::option as id_option;
use crate::error::{Error, Result};

use super::keepalive::default_idle;
use super::route;
use super::settings::{Settings, buffer_from_option, short_from_option};
use super::stream::Stream;
use super::tcp_info::Info;
use super::wire::round_mappings;

/// The options of a socket, but for those that its calls look at.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes, used when the socket connects.
    pub settings: Settings,
    /// Path records to use instead of resolving a route.
    pub route: Vec<u8>,
    /// How long close waits, if the program chose.
    pub linger: Option<Duration>,
    linger_on: bool,
    reuse: c_int,
    keepalive: c_int,
    keep_idle: c_int,
    oob_inline: c_int,
    no_delay: c_int,
    tos: c_int,
    v6_only: c_int,
}

impl Options {
    /// Those of a new socket.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            route: Vec::new(),
            linger: None,
            linger_on: true,
            reuse: 0,
            keepalive: 0,
            keep_idle: 0,
            oob_inline: 0,
            no_delay: 0,
            tos: 0,
            v6_only: 0,
        }
    }

    /// Seconds of idleness after which the peer is to prove that it is there.
    pub fn keepalive(&self) -> Option<c_int> {
        (self.keepalive != 0).then_some(self.keep_idle)
    }

    /// Those of a socket that a listener with these options makes.
    pub fn inherit(&self) -> Self {
        Self {
            route: Vec::new(),
            ..self.clone()
        }
    }
}

/// No socket has the option.
pub const UNKNOWN: Error = Error::new(libc::ENOTSUP, "use an unknown option");

/// Sets an option. Blocks no longer than the kernel's commands do.
///
/// # Errors
/// `ENOTSUP` for an unknown one, `EINVAL` for a wrong length or value or too
/// late, else what the kernel says.
pub fn set(stream: &Arc<Stream>, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    match (level, name) {
        (SOL_RDMA, _) => set_rdma(stream, name, value),
        (libc::SOL_SOCKET, libc::SO_LINGER) => set_linger(stream, value),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            stream.common().receive_timeout().set(duration(value)?);
            Ok(())
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
            stream.common().send_timeout().set(duration(value)?);
            Ok(())
        }
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
            let on = integer(value)?;
            // As the original: some kernels refuse it once bound.
            if let Err(error) = set_id(stream.id(), RDMA_OPTION_ID_REUSEADDR, &on.to_ne_bytes()) {
                log::info!("{}: {error}", stream.id());
            }
            stream.options().reuse = on;
            Ok(())
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            let tos = match value {
                [tos] => c_int::from(*tos),
                _ => integer(value)?,
            };
            let byte = u8::try_from(tos).map_err(|_| Error::invalid("set the type of service"))?;
            set_id(stream.id(), RDMA_OPTION_ID_TOS, &[byte])?;
            stream.options().tos = tos;
            Ok(())
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
            let on = integer(value)?;
            set_id(stream.id(), RDMA_OPTION_ID_AFONLY, &on.to_ne_bytes())?;
            stream.options().v6_only = on;
            Ok(())
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) | (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
            set_keepalive(stream, name, integer(value)?)
        }
        _ => set_number(stream, level, name, integer(value)?),
    }
}

fn set_number(stream: &Stream, level: c_int, name: c_int, value: c_int) -> Result<()> {
    let before_connecting = !stream.is_opening_or_later();
    let mut options = stream.options();
    let flag = c_int::from(value != 0);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
            if before_connecting {
                options.settings.receive_buffer = buffer_from_option(value);
            }
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
            if before_connecting {
                options.settings.send_buffer = buffer_from_option(value);
            }
        }
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.oob_inline = flag,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay = flag,
        (
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG
            | libc::TCP_KEEPCNT
            | libc::TCP_KEEPINTVL
            | libc::TCP_CONGESTION
            | libc::TCP_USER_TIMEOUT
            | libc::TCP_QUICKACK
            | libc::TCP_CORK,
        ) => {}
        _ => return Err(UNKNOWN),
    }
    Ok(())
}

fn set_keepalive(stream: &Arc<Stream>, name: c_int, value: c_int) -> Result<()> {
    {
        let mut options = stream.options();
        if name == libc::SO_KEEPALIVE {
            options.keepalive = c_int::from(value != 0);
        } else if value > 0 {
            options.keep_idle = value;
        } else {
            return Err(Error::invalid("set the keep-alive time"));
        }
        if options.keepalive != 0 && options.keep_idle == 0 {
            options.keep_idle = default_idle();
        }
    }
    stream.keep_alive()
}

fn set_rdma(stream: &Stream, name: c_int, value: &[u8]) -> Result<()> {
    if stream.is_opening_or_later() {
        return Err(Error::invalid("set a size of a connected socket"));
    }
    let mut options = stream.options();
    let settings = &mut options.settings;
    match name {
        RDMA_SQSIZE => settings.send_queue = short_from_option(integer(value)?),
        RDMA_RQSIZE => settings.receive_queue = short_from_option(integer(value)?),
        RDMA_INLINE => settings.inline = short_from_option(integer(value)?),
        RDMA_IOMAPSIZE => {
            settings.mappings = round_mappings(short_from_option(integer(value)?));
        }
        RDMA_ROUTE => {
            let count = value.len() / route::RECORD_LEN;
            if !value.len().is_multiple_of(route::RECORD_LEN)
                || !(1..=route::MOST_RECORDS).contains(&count)
            {
                return Err(Error::invalid("set the route"));
            }
            options.route = value.to_vec();
        }
        _ => return Err(UNKNOWN),
    }
    Ok(())
}

fn set_linger(stream: &Stream, value: &[u8]) -> Result<()> {
    let (on, seconds) = (
        integer(value)?,
        integer(value.get(4..).unwrap_or_default())?,
    );
    let mut options = stream.options();
    options.linger_on = on != 0;
    options.linger = (on != 0).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    Ok(())
}

/// The value of an option, as bytes for the program.
///
/// # Errors
/// `ENOTSUP` for an unknown one.
pub fn get(stream: &Stream, level: c_int, name: c_int) -> Result<Vec<u8>> {
    let number = |value: c_int| Ok(value.to_ne_bytes().to_vec());
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        return Ok(info(stream).encode());
    }
    let endpoint = stream.established().map(|connection| connection.endpoint());
    let options = stream.options();
    let settings = &options.settings;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => number(stream.take_error()),
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => number(options.reuse),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => number(clip(settings.receive_buffer)),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => number(clip(settings.send_buffer)),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => number(options.keepalive),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => number(options.oob_inline),
        (libc::SOL_SOCKET, libc::SO_TYPE) => number(libc::SOCK_STREAM),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => number(stream.domain()),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => number(libc::IPPROTO_TCP),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => number(stream.is_listening().into()),
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let seconds = options.linger.map_or(0, |limit| limit.as_secs() as c_int);
            let on = c_int::from(options.linger_on);
            Ok([on.to_ne_bytes(), seconds.to_ne_bytes()].concat())
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            Ok(timeval(stream.common().receive_timeout().get()))
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => Ok(timeval(stream.common().send_timeout().get())),
        (libc::IPPROTO_IP, libc::IP_TOS) => number(options.tos),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => number(options.v6_only),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => number(options.no_delay),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => number(options.keep_idle),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => number(1),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => number(route::packet_length(stream.id())),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => number(1),
        (SOL_RDMA, RDMA_SQSIZE) => number(
            endpoint
                .map_or(settings.send_queue, |endpoint| endpoint.send_queue())
                .into(),
        ),
        (SOL_RDMA, RDMA_RQSIZE) => number(
            endpoint
                .map_or(settings.receive_queue, |endpoint| endpoint.receive_queue())
                .into(),
        ),
        (SOL_RDMA, RDMA_INLINE) => number(endpoint.map_or(settings.inline.into(), |endpoint| {
            c_int::try_from(endpoint.inline()).unwrap_or(c_int::MAX)
        })),
        (SOL_RDMA, RDMA_IOMAPSIZE) => number(settings.mappings.into()),
        (SOL_RDMA, RDMA_ROUTE) if options.route.is_empty() => Ok(route::records(stream.id())),
        (SOL_RDMA, RDMA_ROUTE) => Ok(options.route.clone()),
        _ => Err(UNKNOWN),
    }
}

fn info(stream: &Stream) -> Info {
    Info {
        state: stream.tcp_state(),
        packet_length: route::packet_length(stream.id()).cast_unsigned(),
        window: stream.options().settings.send_queue.into(),
    }
}

fn set_id(id: &Id, name: c_int, value: &[u8]) -> Result<()> {
    id_option::set(id, RDMA_OPTION_ID, name, value.as_ptr().cast(), value.len())
}

/// A size as the program's `int`.
pub fn clip(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// An `int` of the program's, of which more bytes are ignored.
///
/// # Errors
/// `EINVAL` for fewer bytes.
pub fn integer(value: &[u8]) -> Result<c_int> {
    value
        .first_chunk()
        .map(|bytes| c_int::from_ne_bytes(*bytes))
        .ok_or(Error::invalid("set an option to too few bytes"))
}

/// A time limit from a `struct timeval`. A negative one has passed as soon as a call
/// would wait, as on Linux; zero means none.
///
/// # Errors
/// `EINVAL` for too few bytes, `EDOM` for an invalid part of a second.
pub fn duration(value: &[u8]) -> Result<Duration> {
    const STEP: &str = "set a time limit";
    let field = |offset: usize| {
        value
            .get(offset..)
            .and_then(|rest| rest.first_chunk())
            .map(|bytes| i64::from_ne_bytes(*bytes))
            .ok_or(Error::invalid(STEP))
    };
    let (seconds, micros) = (field(0)?, field(8)?);
    let micros = u32::try_from(micros)
        .ok()
        .filter(|micros| *micros < 1_000_000)
        .ok_or(Error::new(libc::EDOM, STEP))?;
    let Ok(seconds) = u64::try_from(seconds) else {
        return Ok(Duration::from_nanos(1));
    };
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros.into())))
}

/// A `struct timeval`.
pub fn timeval(duration: Duration) -> Vec<u8> {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    let micros = i64::from(duration.subsec_micros());
    [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_survive_their_bytes() {
        let limit = Duration::new(3, 250_000_000);
        assert_eq!(duration(&timeval(limit)), Ok(limit));
        assert!(duration(&[0; 12]).is_err());
        let past = [(-1i64).to_ne_bytes(), [0; 8]].concat();
        assert!(duration(&past).is_ok_and(|limit| !limit.is_zero()));
        assert!(duration(&[&[0; 8][..], &[255; 8]].concat()).is_err());
    }
}
