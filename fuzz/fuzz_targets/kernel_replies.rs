//! Replies of the connection manager's device: whatever bytes the kernel
//! writes, and however few, the accessors hand out bounded data.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmacm::kernel::Reply;
use rdmacm::kernel::plain::Plain;
use rdmacm::kernel::ucma::{
    AddrReply, GidReply, KernelEvent, MAX_PATHS, MAX_ROUTE_PATHS, PathReply, RouteReply,
    ServiceRecord,
};
use rdmacm::kernel::uverbs::QpAttr;

fuzz_target!(|bytes: &[u8]| {
    let event = KernelEvent::from_kernel(bytes);
    assert!(event.conn().private_data().len() < 256);
    assert!(event.ud().private_data().len() < 256);
    let _ = (
        event.ud().ah_attr().to_verbs(),
        event.user_arg(),
        event.ece(),
    );

    let addrs = AddrReply::from_kernel(bytes);
    for addr in [addrs.src(), addrs.dst()].into_iter().flatten() {
        assert!(addr.byte_len() <= 128);
        let _ = (addr.to_string(), addr.gid(), addr.port());
    }
    let gids = GidReply::from_kernel(bytes);
    let _ = (gids.sgid(), gids.dgid());

    let route = RouteReply::from_kernel(bytes);
    let _ = (route.src(), route.dst(), route.sgid(), route.dgid());
    assert!(route.paths().len() <= MAX_ROUTE_PATHS);
    assert!(route.ethernet_paths().len() <= MAX_ROUTE_PATHS);
    assert!(PathReply::from_kernel(bytes).to_verbs().len() <= MAX_PATHS);

    let _ = QpAttr::from_kernel(bytes);
    let _ = ServiceRecord::from_prefix(bytes);
});
