//! Queuing an event of the library's or the program's own for an identifier.
//! Kernels since 6.17 have a command for it; on older ones a
//! [`messenger`] carries it.

use std::sync::Arc;

use crate::abi::{RDMA_CM_EVENT_INTERNAL, RDMA_CM_EVENT_USER, rdma_cm_event_type};
use crate::error::{Error, Result};
use crate::fork::Once;
use crate::kernel::command::submit;
use crate::kernel::ucma::WriteCmEvent;

use super::id::{Id, State};
use super::messenger::{self, Message};

/// Queues an event of the program's own on the identifier's channel.
///
/// # Errors
/// `EINVAL` for any type but `RDMA_CM_EVENT_USER`, else as for [`post`].
pub fn post_user(id: &Arc<Id>, kind: rdma_cm_event_type, status: i32, arg: u64) -> Result<()> {
    if kind != RDMA_CM_EVENT_USER {
        return Err(Error::invalid("write an event that is not a user event"));
    }
    let event = kind;
    post(id, &mut id.state(), Message { event, status, arg })
}

/// Queues an event for the identifier whose locked state is `state`. Does not
/// block.
///
/// # Errors
/// What the kernel says.
pub fn post(id: &Arc<Id>, state: &mut State, message: Message) -> Result<()> {
    if !has_commands(id)? {
        return messenger::send(id, state, message);
    }
    let Message { event, status, arg } = message;
    submit(
        id.descriptor()?,
        WriteCmEvent::new(id.handle(), event, status, arg),
    )
}

/// Whether the kernel has the commands of Linux 6.17, which queue an event and
/// look up an InfiniBand service. Older ones refuse what they do not know in
/// the same way as bad arguments, so they are told apart by a question about no
/// identifier, once per process.
///
/// # Errors
/// What the kernel says of the channel.
pub fn has_commands(id: &Id) -> Result<bool> {
    static KNOWN: Once<bool> = Once::new();
    KNOWN
        .get_or_try_init(|| {
            let nobody = WriteCmEvent::new(u32::MAX, RDMA_CM_EVENT_INTERNAL, 0, 0);
            match submit(id.descriptor()?, nobody) {
                Err(error) if error.errno() == libc::EINVAL => Ok(false),
                Err(error) if error.errno() != libc::ENOENT => Err(error),
                _ => Ok(true),
            }
        })
        .copied()
}
