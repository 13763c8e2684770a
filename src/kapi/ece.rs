//! Connecting and accepting with vendor options that the program gives,
//! whatever the driver says of the queue pair.

use std::sync::Arc;

use crate::cm::connect::{self, Param};
use crate::cm::id::Id;
use crate::error::{Error, Result};
use crate::kernel::ucma::Ece;
use crate::verbs::bindings::ibv_ece;

/// Asks for a connection and offers `ece`. As [`connect::connect`].
///
/// # Errors
/// `EINVAL` for a `comp_mask` other than 0, else as [`connect::connect`].
pub fn connect(id: &Arc<Id>, param: Option<&Param<'_>>, ece: ibv_ece) -> Result<()> {
    let ece = to_kernel(ece)?;
    id.state().ece.set_local(ece);
    connect::connect(id, param)
}

/// Accepts a connection request and answers with `ece`. As
/// [`connect::accept`].
///
/// # Errors
/// `EINVAL` for a `comp_mask` other than 0, else as [`connect::accept`].
pub fn accept(id: &Arc<Id>, param: Option<&Param<'_>>, ece: ibv_ece) -> Result<()> {
    let ece = to_kernel(ece)?;
    id.state().ece.set_reply(ece);
    connect::accept(id, param)
}

fn to_kernel(ece: ibv_ece) -> Result<Ece> {
    if ece.comp_mask != 0 {
        return Err(Error::invalid("offer ECE with unknown members"));
    }
    Ok(Ece {
        vendor_id: ece.vendor_id,
        attr_mod: ece.options,
    })
}
