//! What libibverbs says: its declarations and the functions that its header
//! defines inline, for which there is no symbol to link to.
//!
//! The minimum is libibverbs 35 (`ibv_get_device_index`). Whether and when a
//! call is made is decided in [`crate::cm`]; nothing here keeps state.

pub mod bindings;
pub mod dispatch;
