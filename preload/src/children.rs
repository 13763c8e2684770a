//! What a forked child finds: the sockets and sets of its parent as they were, and no
//! lock held by a thread that is not there any more. What is made when first needed
//! is made without one, or by whoever comes.

use crate::{connect, fork, rdmacm, sets, table};

/// As in librdmacm.
#[path = "../../src/fork/held.rs"]
mod held;

pub use held::{AcrossFork, Held};

/// The locks, in the order in which a thread may take several.
static LOCKS: [&dyn AcrossFork; 4] = [
    &sets::SETS,
    &connect::PENDING,
    &fork::SOCKETS,
    &rdmacm::LOADING,
];

/// Sees to forks from now on.
pub extern "C" fn watch() {
    // Without memory for that, a child is not seen to.
    let _ = held::watch(before, held::let_go, in_child);
}

/// When the library is loaded: a fork that has begun before waits for nothing, and the
/// first call of another thread may come just then.
// SAFETY: the dynamic loader calls what is in this section.
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[used]
static AT_LOAD: extern "C" fn() = watch;

extern "C" fn before() {
    held::hold(&LOCKS);
}

extern "C" fn in_child() {
    table::take_over();
    held::let_go();
}
