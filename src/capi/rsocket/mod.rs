//! The functions of `<rdma/rsocket.h>`: sockets over RDMA.
//!
//! One module per subject; `argument` is what several of them share.

mod argument;
pub mod epoll;
pub mod life;
pub mod map;
pub mod option;
pub mod poll;
pub mod receive;
pub mod send;
