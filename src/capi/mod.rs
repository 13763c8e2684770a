//! The exported C functions, one file or folder per public header, and
//! nothing else.
//!
//! Each function checks its pointers, turns them into references or typed
//! values, calls one function of the core and hands the `Result` to
//! `convert`, the only place that knows how C is told of success and
//! failure. The documentation of the functions becomes the documentation of
//! the generated headers.
//!
//! A panic never crosses into C: the core has none, and the library is built
//! with `panic = "abort"`.

mod argument;
mod convert;
pub mod rdma_cm_kapi;
pub mod rdma_cma;
pub mod rdma_verbs;
pub mod rsocket;
