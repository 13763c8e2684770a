//! What the kernel's own connection manager interface offers and librdmacm
//! never did, for programs in user space.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`option`] | what is chosen for an identifier before it connects |
//! | [`reject`] | what a rejection means |
//! | [`ece`] | connecting and accepting with given vendor options |
//! | [`address`] | the GIDs of an identifier, and InfiniBand services |
//! | [`handler`] | keeping events of an identifier from being handled |
//!
//! The functions are those of the kernel's manual; what the kernel has no
//! command for is done here and in the hooks that [`crate::cm`] has for it.

pub mod address;
pub mod ece;
pub mod handler;
pub mod option;
pub mod reject;
