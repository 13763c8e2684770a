//! Sockets over RDMA (rsocket(7)), wire-compatible with the original.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`sockets`], [`table`] | which descriptors are sockets |
//! | [`socket`], [`common`] | a socket of any kind; what all of them have |
//! | [`stream`] | stream sockets: their life from creation to close, waiting |
//! | [`datagram`] | datagram sockets |
//! | [`connection`] | an established stream: data and control messages |
//! | [`endpoint`], [`prepared`], [`completion`] | queue pair, completion queue and memory of a connection |
//! | [`spare`] | what closed connections leave for the next ones |
//! | [`carrier`] | how messages travel with and without immediate data |
//! | [`events`] | events of the connection manager |
//! | [`flow`] | credits, buffer halves and send space, without any device |
//! | [`pace`], [`flusher`] | when small sends are gathered, and who posts them |
//! | [`wire`] | formats of private data, messages and list entries |
//! | [`service`], `watched`, `pauses` | the thread that accepts, completes and ends connections; what it looks after, and not for a while |
//! | [`lingering`] | closed sockets whose data is still on its way |
//! | [`poll`], [`select`] | `rpoll` and `rselect` |
//! | [`epoll`] | epoll sets |
//! | [`wait`], [`looking`] | sleeping; looking before a sleep |
//! | [`waiters`], [`wake`] | who is told of changes; waking a thread |
//! | [`option`], [`settings`] | options, defaults, configuration files |
//! | [`route`], [`tcp_info`], [`keepalive`] | path records, `TCP_INFO`, keep-alive messages |
//! | [`mapping`] | memory that the peer may write to directly |
//! | [`memory`], [`vectors`] | registered memory; the program's buffers |
//!
//! Functions here return [`crate::Result`]; none touches `errno`.

pub mod carrier;
pub mod common;
pub mod completion;
pub mod connection;
pub mod datagram;
pub mod endpoint;
pub mod epoll;
pub mod events;
pub mod flow;
pub mod flusher;
pub mod keepalive;
pub mod lingering;
pub mod looking;
pub mod mapping;
pub mod memory;
#[cfg(all(test, feature = "model"))]
mod model;
pub mod option;
pub mod pace;
mod pauses;
pub mod poll;
pub mod prepared;
pub mod route;
pub mod select;
pub mod service;
pub mod settings;
pub mod socket;
pub mod sockets;
pub mod spare;
pub mod stream;
pub mod table;
pub mod tcp_info;
pub mod vectors;
pub mod wait;
pub mod waiters;
pub mod wake;
mod watched;
pub mod wire;
