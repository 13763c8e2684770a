//! What the service thread does for a datagram socket: it takes packets from
//! the side channel, answers them, and goes on with the search for ways to
//! peers, whatever the program does meanwhile.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::abi::RDMA_CM_EVENT_DEVICE_REMOVAL;
use crate::lock::locked;

use super::super::events::{Channel, Report};
use super::super::service::{Next, Watched};
use super::Datagram;
use super::core::REMOVED;
use super::endpoint::Endpoint;
use super::header::{self, Purpose, Side};

/// Bytes of the largest packet taken from the side channel.
const LARGEST_PACKET: usize = 4096;
/// Packets taken from the side channel before other sockets have their turn.
const PACKETS: usize = 64;

impl Datagram {
    /// Takes packets from the side channel.
    fn take_packets(self: &Arc<Self>) {
        let mut buffer = [0; LARGEST_PACKET];
        for _ in 0..PACKETS {
            match self.udp.receive(&mut buffer) {
                Ok(Some((packet, source))) => {
                    if let Some(side) = header::read_side(packet, source) {
                        let data = packet.get(side.length..).unwrap_or_default();
                        self.take_packet(source, &side, data);
                    }
                }
                Ok(None) => {}
                Err(error) if error.errno() == libc::EAGAIN => return,
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => self.set_error(&error),
            }
        }
    }

    fn take_packet(self: &Arc<Self>, source: SocketAddr, side: &Side, data: &[u8]) {
        let stranger = self.with_core(|core| {
            if side.purpose == Purpose::Data {
                let settings = self.options().settle();
                core.deliver(source, data, &settings);
            }
            !core.knows(source)
        });
        if side.purpose == Purpose::Data {
            self.common.waiters().notify();
        }
        let outcome = self.with_peer(source, |core| {
            let owed = match side.purpose {
                Purpose::Data => core.answer_to(source, data.len()),
                Purpose::Control if stranger => core.local(source),
                Purpose::Control => None,
            };
            // It goes first, as it takes longer to find the way.
            if let Some(local) = owed {
                let answer = header::side(Purpose::Control, local.source, local.qpn);
                self.udp.send(answer.as_bytes(), source, true)?;
            }
            let channel = self.channel()?;
            // SAFETY: the socket drops the channel after its core.
            unsafe { core.heard(channel, source, side.qpn) }
        });
        if let Err(error) = outcome {
            log::info!("{source} is left to the side channel: {error}");
        }
    }

    /// Goes on with the search for ways to peers.
    fn take_events(&self) -> Next {
        let Some(channel) = self.channel.get() else {
            return Next::Watch;
        };
        loop {
            let asked = Report::next(channel);
            let next = Channel::after(&asked);
            match asked {
                Ok(report) => {
                    let over = locked(&self.core).resolve(&report);
                    drop(over);
                    if report.kind == RDMA_CM_EVENT_DEVICE_REMOVAL {
                        // One that is being made on the device is kept first.
                        let _making = locked(&self.making);
                        // Whoever sends or hears of a peer makes another.
                        let mut lost = locked(&self.core).lose(report.id);
                        if lost.as_mut().is_some_and(Endpoint::take_loss) {
                            self.set_error(&REMOVED);
                        }
                    }
                }
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => {
                    if next != Next::Watch {
                        log::error!("no event of the connection manager: {error}");
                    }
                    return next;
                }
            }
        }
    }
}

impl Watched for Datagram {
    fn handle(self: Arc<Self>, fd: RawFd) -> Next {
        if fd != self.descriptor() {
            return self.take_events();
        }
        self.take_packets();
        Next::Watch
    }
}
