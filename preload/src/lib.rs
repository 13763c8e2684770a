//! `librspreload.so`: loaded with `LD_PRELOAD`, it takes the place of the C
//! library's socket calls, so that unmodified programs use sockets over RDMA
//! (rsocket(7)) where the configuration says so.
//!
//! A socket of the program is a socket of the kernel, whose descriptor the
//! program holds, and as long as it is in [`table`], a socket over RDMA behind
//! it, which does the work. When RDMA cannot serve, only the latter goes: the
//! program goes on with the kernel's socket, to which its address and options
//! were given as well.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`next`] | the functions that are replaced |
//! | [`rdmacm`] | the functions of librdmacm, loaded when first needed |
//! | [`memory`] | what a program points to |
//! | [`inside`] | calls that librdmacm makes itself |
//! | [`lock`], [`children`] | locks, and what forked children find |
//! | [`table`] | which descriptors have a socket over RDMA |
//! | [`config`] | which sockets are to have one |
//! | [`sockets`] | `socket`, `accept`, `close`, `dup` and what is like them |
//! | [`connect`] | `bind`, `listen`, `connect`; falling back to the kernel |
//! | [`fork`] | connections that go over to RDMA at their first use |
//! | [`transfer`] | sending and receiving |
//! | [`restart`] | calls that signals interrupt |
//! | [`option`], [`number`] | options, flags and names |
//! | [`poll`], [`select`], [`epoll`] | waiting |
//! | [`sets`] | which epoll sets have sockets over RDMA |
//! | [`waiting`] | time limits and signal masks of calls that wait |
//!
//! No function here has a state of its own that a call has to set up: whichever
//! is the first that a program calls, works. When the library is loaded, all that it
//! does is to ask to be told of forks.

pub mod children;
pub mod config;
pub mod connect;
pub mod epoll;
pub mod fork;
pub mod inside;
pub mod lock;
pub mod memory;
pub mod next;
pub mod number;
pub mod option;
pub mod poll;
pub mod rdmacm;
pub mod restart;
pub mod select;
pub mod sets;
pub mod sockets;
pub mod table;
pub mod transfer;
pub mod waiting;
