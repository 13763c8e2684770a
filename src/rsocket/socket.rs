//! A socket of any kind, as far as the calls that take any kind need to know.

use std::os::fd::RawFd;
use std::sync::Arc;

use super::common::Common;
use super::datagram::Datagram;
use super::stream::Stream;
use super::wait::Notifier;

/// A counted reference to a socket.
#[derive(Clone, Debug)]
pub enum Socket {
    /// A stream.
    Stream(Arc<Stream>),
    /// Datagrams.
    Datagram(Arc<Datagram>),
}

impl Socket {
    /// The number by which programs know the socket.
    pub fn descriptor(&self) -> RawFd {
        match self {
            Self::Stream(stream) => stream.descriptor(),
            Self::Datagram(datagram) => datagram.descriptor(),
        }
    }

    /// Whether it is the same socket as `other`.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(one), Self::Stream(other)) => Arc::ptr_eq(one, other),
            (Self::Datagram(one), Self::Datagram(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// What sockets of every kind have.
    pub fn common(&self) -> &Common {
        match self {
            Self::Stream(stream) => stream.common(),
            Self::Datagram(datagram) => datagram.common(),
        }
    }

    /// What tells of its completions, once it has any.
    pub fn notifier(&self) -> Option<&dyn Notifier> {
        match self {
            Self::Stream(stream) => stream
                .established()
                .map(|connection| connection as &dyn Notifier),
            Self::Datagram(datagram) => Some(&**datagram),
        }
    }

    /// What `poll(2)` would say of the events `interest`, those that are
    /// always reported included.
    pub fn poll(&self, interest: i16) -> i16 {
        match self {
            Self::Stream(stream) => stream.poll(interest),
            Self::Datagram(datagram) => datagram.poll(interest),
        }
    }

    /// Whether nothing of what it sent is left.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.has_ended(),
            Self::Datagram(datagram) => datagram.has_ended(),
        }
    }

    /// Ends the socket.
    pub fn close(self) {
        match self {
            Self::Stream(stream) => stream.close(),
            Self::Datagram(datagram) => datagram.close(),
        }
    }
}
