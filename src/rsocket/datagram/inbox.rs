//! Datagrams that have arrived at a socket and were not received yet, in their
//! order: in the memory of its endpoints, or copied from the side channel.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::error::{Error, Result};

use super::endpoint::{Arrival, Endpoint};
use super::endpoints::Endpoints;
use crate::rsocket::vectors::Cursor;

/// A datagram that has arrived.
#[derive(Debug)]
struct Message {
    source: SocketAddr,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// In the memory of the endpoint at a place.
    Slot(usize, Arrival),
    /// From the side channel.
    Owned(Vec<u8>),
}

/// What a receive took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub source: SocketAddr,
    /// Bytes of the datagram, which may be more than there was room for.
    pub length: usize,
    /// Bytes copied.
    pub copied: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Inbox {
    messages: VecDeque<Message>,
    /// How many are copies.
    owned: usize,
}

impl Inbox {
    /// Adds what has arrived in the memory of the endpoint at `place`.
    pub fn add_arrival(&mut self, place: usize, arrival: Arrival) {
        self.messages.push_back(Message {
            source: arrival.source,
            body: Body::Slot(place, arrival),
        });
    }

    /// Adds a copy of `data` unless there are `most` copies.
    pub fn add_copy(&mut self, source: SocketAddr, data: &[u8], most: usize) {
        if self.owned < most {
            self.owned = self.owned.saturating_add(1);
            self.messages.push_back(Message {
                source,
                body: Body::Owned(data.to_vec()),
            });
        }
    }

    /// Copies what lies in the memory of the endpoint at `place`, which goes.
    pub fn detach(&mut self, place: usize, endpoint: &Endpoint) {
        for message in &mut self.messages {
            if let Body::Slot(at, arrival) = &message.body
                && *at == place
            {
                message.body = Body::Owned(endpoint.read(arrival));
                self.owned = self.owned.saturating_add(1);
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes of the first datagram, 0 if there is none.
    pub fn first_length(&self) -> usize {
        self.messages
            .front()
            .map_or(0, |message| match &message.body {
                Body::Slot(_, arrival) => arrival.length,
                Body::Owned(data) => data.len(),
            })
    }

    /// Copies the first datagram to `target`; `peek` leaves it where it is.
    ///
    /// # Errors
    /// `EAGAIN` if there is none, else what libibverbs says.
    pub fn receive(
        &mut self,
        endpoints: &mut Endpoints,
        target: &mut Cursor<'_>,
        peek: bool,
    ) -> Result<Received> {
        let message = self
            .messages
            .front()
            .ok_or(Error::new(libc::EAGAIN, "receive a datagram"))?;
        let room = target.remaining();
        let length = match &message.body {
            Body::Slot(place, arrival) => {
                if let Some(endpoint) = endpoints.get(*place) {
                    endpoint.copy(arrival, target);
                }
                arrival.length
            }
            Body::Owned(data) => {
                // SAFETY: a slice is readable; it is no buffer of the
                // program's.
                unsafe { target.write(data.as_ptr(), data.len().min(room)) };
                data.len()
            }
        };
        let received = Received {
            source: message.source,
            length,
            copied: length.min(room),
        };
        if !peek {
            self.consume(endpoints)?;
        }
        Ok(received)
    }

    fn consume(&mut self, endpoints: &mut Endpoints) -> Result<()> {
        match self.messages.pop_front().map(|message| message.body) {
            Some(Body::Slot(place, arrival)) => match endpoints.get_mut(place) {
                Some(endpoint) => endpoint.release(arrival.slot),
                None => Ok(()),
            },
            Some(Body::Owned(_)) => {
                self.owned = self.owned.saturating_sub(1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}
