//! Commands executed by a C program: an executor that calls the program's
//! functions, and what finished commands go through on their way back.

use std::ffi::c_void;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::ioctx::srpt_send_ioctx;
use super::types::{SRPT_DATA_IN, SRPT_DATA_OUT, srpt_cmd, srpt_ops};
use crate::executor::{Completed, Executor, Outcome, Plan, Request, Started, Token};
use crate::memory::Buffer;
use crate::session::Wake;
use crate::wire::Lun;

/// Finished commands; any thread may add some.
#[derive(Debug)]
pub struct Finished {
    commands: Mutex<Vec<(Token, Outcome)>>,
    wake: Wake,
}

impl Finished {
    /// None yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            commands: Mutex::default(),
            wake: Wake::new()?,
        }))
    }

    /// Adds a command.
    pub fn add(&self, token: Token, outcome: Outcome) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push((token, outcome));
        self.wake.wake();
    }

    fn take(&self) -> Vec<(Token, Outcome)> {
        self.wake.clear();
        mem::take(&mut self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The functions of a program and their first argument.
#[derive(Clone, Copy)]
pub struct Program {
    /// The functions.
    pub ops: srpt_ops,
    /// Their first argument.
    pub context: *mut c_void,
}

// SAFETY: the program vouches that its functions may be called by the thread
// that works on a channel, whichever it is.
unsafe impl Send for Program {}
// SAFETY: as for `Send`.
unsafe impl Sync for Program {}

/// Executes commands by a program.
pub struct ProgramExecutor {
    program: Program,
    finished: Arc<Finished>,
    contexts: Arc<[srpt_send_ioctx]>,
    /// The buffers that the program has, by token.
    buffers: Vec<Option<Buffer>>,
}

impl ProgramExecutor {
    /// An executor for as many commands as there are contexts.
    pub fn new(
        program: Program,
        finished: Arc<Finished>,
        contexts: Arc<[srpt_send_ioctx]>,
    ) -> Self {
        let buffers = contexts.iter().map(|_| None).collect();
        Self {
            program,
            finished,
            contexts,
            buffers,
        }
    }

    fn context(&self, token: Token) -> *mut srpt_send_ioctx {
        self.contexts
            .get(usize::from(token.0))
            .map_or(std::ptr::null_mut(), |context| {
                std::ptr::from_ref(context).cast_mut()
            })
    }
}

/// The command for C; it borrows from the request.
fn view(request: &Request<'_>) -> srpt_cmd {
    srpt_cmd {
        tag: u64::from_ne_bytes(request.tag.0),
        lun: request.lun.0,
        cdb: request.cdb.as_ptr(),
        cdb_len: request.cdb.len() as u32,
        task_attr: request.attribute.bits().into(),
        data_out: request.data_out,
        data_in: request.data_in,
    }
}

impl Executor for ProgramExecutor {
    fn plan(&mut self, request: &Request<'_>) -> Plan {
        let Some(plan) = self.program.ops.plan else {
            return Plan::NoData;
        };
        let mut length = 0;
        // SAFETY: the program's function with its own context; the command is
        // valid during the call.
        let direction = unsafe { plan(self.program.context, &view(request), &mut length) };
        match direction {
            SRPT_DATA_OUT => Plan::Out(length),
            SRPT_DATA_IN => Plan::In(length),
            _ => Plan::NoData,
        }
    }

    fn start(&mut self, token: Token, request: &Request<'_>, buffer: Buffer) -> Started {
        let context = self.context(token);
        let (data, length) = (buffer.pointer(), buffer.len() as u32);
        if let Some(slot) = self.buffers.get_mut(usize::from(token.0)) {
            *slot = Some(buffer);
        }
        match self.program.ops.execute {
            // SAFETY: as for `plan`. The buffer is kept until the program says
            // that the command is finished.
            Some(execute) => unsafe {
                execute(
                    self.program.context,
                    context,
                    &view(request),
                    data.cast(),
                    length,
                );
            },
            None => {
                let busy = Outcome::status(crate::executor::status::BUSY);
                self.finished.add(token, busy);
            }
        }
        Started::Pending
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completed)) {
        for (token, outcome) in self.finished.take() {
            let slot = self.buffers.get_mut(usize::from(token.0));
            match slot.and_then(Option::take) {
                Some(buffer) => done(Completed {
                    token,
                    outcome,
                    buffer,
                }),
                None => log::error!("{token:?} was finished, but is not executed"),
            }
        }
    }

    fn abort(&mut self, token: Token) {
        if let Some(abort) = self.program.ops.abort {
            // SAFETY: as for `plan`.
            unsafe { abort(self.program.context, self.context(token)) };
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.finished.wake.as_fd())
    }

    fn reset(&mut self, lun: Lun) {
        if let Some(reset) = self.program.ops.reset {
            // SAFETY: as for `plan`.
            unsafe { reset(self.program.context, lun.0.as_ptr()) };
        }
    }
}
