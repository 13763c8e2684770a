//! The queue pair of a channel with its completion queue and registered
//! memory. What is posted when is decided in [`crate::channel`], when the
//! connection is accepted by whoever drives the channel.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use rdmacm::rsocket::memory::{Access, Registration};
use rdmacm::verbs::bindings::{
    IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_SEND, ibv_ack_cq_events, ibv_comp_channel, ibv_context, ibv_cq, ibv_create_comp_channel,
    ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_device_attr, ibv_get_cq_event,
    ibv_qp, ibv_qp_init_attr, ibv_query_device, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
};
use rdmacm::verbs::{dispatch, failure};
use rdmacm::{Error, Result};

use crate::channel::link::{Completion, Link, Operation, ReceiveRequest, SendRequest, Work};
use crate::connection::Connection;
use crate::memory::Area;
use crate::queue_pair::{self, QpPolicy};

/// Send requests asked for at first; halved while the device refuses.
const SEND_QUEUE: u32 = 1024;
/// With fewer no channel is served.
const MIN_SEND_QUEUE: u32 = 16;
/// Completions taken at once.
const BATCH: usize = 32;
/// Work requests that are handed to the device at once.
const POST_BATCH: usize = 128;

/// A queue pair with all it needs.
pub struct Endpoint {
    connection: Box<dyn Connection>,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    notifications: u32,
    send_queue: u16,
    registration: Option<Registration>,
    /// Outlives the registration.
    _area: Arc<Area>,
}

/// `value` with all bytes zero.
macro_rules! zeroed {
    ($type:ty) => {
        // SAFETY: plain numbers and pointers, for which zero is valid.
        unsafe { MaybeUninit::<$type>::zeroed().assume_init() }
    };
}

impl Endpoint {
    /// Makes the queue pair of a connection request, with room for `receives`
    /// receives, that can reach `area`.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn new(
        connection: Box<dyn Connection>,
        area: &Arc<Area>,
        receives: u16,
        policy: QpPolicy,
    ) -> Result<Self> {
        let context = connection.context()?;
        // SAFETY: the connection keeps its device open.
        let channel = unsafe { ibv_create_comp_channel(context) };
        if channel.is_null() {
            return Err(Error::last_os("create a completion channel"));
        }
        let mut endpoint = Self {
            connection,
            channel,
            cq: ptr::null_mut(),
            notifications: 0,
            send_queue: 0,
            registration: None,
            _area: Arc::clone(area),
        };
        endpoint.make_nonblocking()?;
        // SAFETY: as above.
        let mut sends = SEND_QUEUE.min(unsafe { max_requests(context) }?);
        while let Err(error) = endpoint.create_queues(context, sends, receives.into()) {
            sends /= 2;
            if sends < MIN_SEND_QUEUE {
                return Err(error);
            }
            log::info!("{error}; {sends} sends instead");
        }
        let qp = endpoint.qp();
        // SAFETY: created just now; the protection domain outlives it. The area
        // is mapped longer than the registration lives, and no peer may write
        // to it.
        endpoint.registration = Some(unsafe {
            queue_pair::init(&*endpoint.connection, qp, policy)?;
            Registration::new((*qp).pd, area.base(), area.length(), Access::Local)
        }?);
        endpoint.arm()?;
        Ok(endpoint)
    }

    fn make_nonblocking(&self) -> Result<()> {
        // SAFETY: a descriptor of ours, no pointers.
        let status = unsafe {
            let fd = (*self.channel).fd;
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        if status < 0 {
            return Err(Error::last_os("make a completion channel non-blocking"));
        }
        Ok(())
    }

    fn create_queues(
        &mut self,
        context: *mut ibv_context,
        sends: u32,
        receives: u32,
    ) -> Result<()> {
        let entries = sends.saturating_add(receives) as i32;
        // SAFETY: context and channel are alive; vector 0 always exists.
        self.cq = unsafe { ibv_create_cq(context, entries, ptr::null_mut(), self.channel, 0) };
        if self.cq.is_null() {
            return Err(Error::last_os("create a completion queue"));
        }
        let mut attr = zeroed!(ibv_qp_init_attr);
        attr.send_cq = self.cq;
        attr.recv_cq = self.cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap.max_send_wr = sends;
        attr.cap.max_recv_wr = receives;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_sge = 1;
        // SAFETY: the attributes name our living completion queue.
        let result = unsafe { self.connection.create_qp(&mut attr) };
        if result.is_err() {
            self.destroy_cq();
        }
        result?;
        // A provider may grant more than the completion queue has room for.
        self.send_queue = attr.cap.max_send_wr.min(sends) as u16;
        Ok(())
    }

    fn destroy_cq(&mut self) {
        if self.cq.is_null() {
            return;
        }
        // SAFETY: created here; no queue pair uses it any more, and all
        // notifications are acknowledged before.
        let status = unsafe {
            ibv_ack_cq_events(self.cq, self.notifications);
            ibv_destroy_cq(self.cq)
        };
        if status != 0 {
            log::warn!("{}", failure(status, "destroy a completion queue"));
        }
        self.cq = ptr::null_mut();
        self.notifications = 0;
    }

    /// The connection.
    pub fn connection(&self) -> &dyn Connection {
        &*self.connection
    }

    /// The queue pair; alive as long as `self`.
    pub fn qp(&self) -> *mut ibv_qp {
        self.connection.qp()
    }

    /// Requests that the send queue holds.
    pub fn send_queue(&self) -> u16 {
        self.send_queue
    }

    /// Descriptor that is readable when completions arrive after
    /// [`Endpoint::arm`].
    pub fn notification_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel and its descriptor live as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }

    /// Takes the notification that [`Endpoint::arm`] asked for. Returns whether
    /// it has come.
    pub fn take_notification(&mut self) -> bool {
        let mut cq = ptr::null_mut();
        let mut context = ptr::null_mut();
        // SAFETY: the channel lives as long as `self` and does not block.
        let taken = unsafe { ibv_get_cq_event(self.channel, &mut cq, &mut context) } == 0;
        self.notifications += u32::from(taken);
        taken
    }

    /// Asks for a notification of the next completion.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn arm(&self) -> Result<()> {
        // SAFETY: the queue lives as long as `self`.
        match unsafe { dispatch::req_notify_cq(self.cq, false) } {
            0 => Ok(()),
            status => Err(failure(status, "arm a completion queue")),
        }
    }

    /// Adds completions to `batch`; when none was added, there are none.
    ///
    /// # Errors
    /// `EIO` if the device cannot say.
    pub fn poll(&self, batch: &mut Vec<Completion>) -> Result<()> {
        let mut entries: [MaybeUninit<ibv_wc>; BATCH] = [MaybeUninit::uninit(); BATCH];
        // SAFETY: the queue lives as long as `self`, and there is room for so
        // many.
        let count =
            unsafe { dispatch::poll_cq(self.cq, BATCH as i32, entries.as_mut_ptr().cast()) };
        let count =
            usize::try_from(count).map_err(|_| Error::new(libc::EIO, "poll a completion queue"))?;
        for entry in entries.iter().take(count) {
            // SAFETY: filled by the provider.
            let entry = unsafe { entry.assume_init_ref() };
            batch.extend(completion(entry));
        }
        Ok(())
    }

    fn local_key(&self) -> u32 {
        self.registration
            .as_ref()
            .map_or(0, Registration::local_key)
    }
}

/// What a completion says; `None` if it is of no request posted here.
pub fn completion(entry: &ibv_wc) -> Option<Completion> {
    let result = match entry.status {
        IBV_WC_SUCCESS => Ok(entry.byte_len),
        status => Err(status),
    };
    Work::decode(entry.wr_id).map(|work| Completion { work, result })
}

/// Most work requests of a queue.
///
/// # Safety
/// `context` is open.
unsafe fn max_requests(context: *mut ibv_context) -> Result<u32> {
    let mut attr = zeroed!(ibv_device_attr);
    // SAFETY: the caller vouches for the context; the structure is ours.
    match unsafe { ibv_query_device(context, &mut attr) } {
        0 => Ok(u32::try_from(attr.max_qp_wr).unwrap_or(0)),
        status => Err(failure(status, "query a device")),
    }
}

/// The work request of a send request whose local bytes are `part`.
fn send_wr(request: &SendRequest, part: *mut ibv_sge) -> ibv_send_wr {
    let mut wr = zeroed!(ibv_send_wr);
    wr.wr_id = request.work.encode();
    wr.sg_list = part;
    wr.num_sge = i32::from(request.length > 0);
    if request.signaled {
        wr.send_flags = IBV_SEND_SIGNALED;
    }
    let remote = match request.operation {
        Operation::Send => {
            wr.opcode = IBV_WR_SEND;
            return wr;
        }
        Operation::Read(remote) => {
            wr.opcode = IBV_WR_RDMA_READ;
            remote
        }
        Operation::Write(remote) => {
            wr.opcode = IBV_WR_RDMA_WRITE;
            remote
        }
    };
    wr.wr.rdma.remote_addr = remote.address;
    wr.wr.rdma.rkey = remote.key;
    wr
}

impl Link for Endpoint {
    fn post_send(&mut self, chain: &[SendRequest]) -> Result<()> {
        let lkey = self.local_key();
        let mut parts = [MaybeUninit::<ibv_sge>::uninit(); POST_BATCH];
        let mut requests = [MaybeUninit::<ibv_send_wr>::uninit(); POST_BATCH];
        for chain in chain.chunks(POST_BATCH) {
            let mut first = ptr::null_mut();
            let rooms = parts.iter_mut().zip(requests.iter_mut());
            for (request, (part, room)) in chain.iter().zip(rooms).rev() {
                let part = part.write(ibv_sge {
                    addr: request.address,
                    length: request.length,
                    lkey,
                });
                let wr = room.write(send_wr(request, part));
                wr.next = first;
                first = wr;
            }
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair lives as long as `self`; the list lives
            // until the call ends, the memory it names until the queue pair is
            // gone.
            let status = unsafe { dispatch::post_send(self.qp(), first, &mut bad) };
            if status != 0 {
                return Err(failure(status, "post a send"));
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, requests: &[ReceiveRequest]) -> Result<()> {
        let lkey = self.local_key();
        let mut parts = [MaybeUninit::<ibv_sge>::uninit(); POST_BATCH];
        let mut list = [MaybeUninit::<ibv_recv_wr>::uninit(); POST_BATCH];
        for requests in requests.chunks(POST_BATCH) {
            let mut first = ptr::null_mut();
            let rooms = parts.iter_mut().zip(list.iter_mut());
            for (request, (part, room)) in requests.iter().zip(rooms).rev() {
                let part = part.write(ibv_sge {
                    addr: request.address,
                    length: request.length,
                    lkey,
                });
                first = room.write(ibv_recv_wr {
                    wr_id: Work::Receive(request.number).encode(),
                    next: first,
                    sg_list: part,
                    num_sge: 1,
                });
            }
            let mut bad = ptr::null_mut();
            // SAFETY: as for sends.
            let status = unsafe { dispatch::post_recv(self.qp(), first, &mut bad) };
            if status != 0 {
                return Err(failure(status, "post a receive"));
            }
        }
        Ok(())
    }

    fn disconnect(&mut self) -> Result<()> {
        self.connection.disconnect()
    }

    fn fail(&mut self) -> Result<()> {
        // SAFETY: alive as long as `self`.
        unsafe { queue_pair::fail(self.qp()) }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.connection.destroy_qp();
        // The protection domain is the device's, and stays.
        self.registration = None;
        self.destroy_cq();
        // SAFETY: created in `new`, and its queue is gone.
        unsafe { ibv_destroy_comp_channel(self.channel) };
    }
}
