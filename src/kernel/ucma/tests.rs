//! Commands and replies as the kernel sees them, byte by byte.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::kernel::addr::{Gid, SockAddr};
use crate::kernel::command::{Reply, submit};
use crate::kernel::plain::Plain;
use crate::verbs::bindings::ibv_gid;

/// The bytes that a command writes, with the address for the reply cleared.
fn written<C: Command>(command: C, response: Option<usize>) -> Vec<u8> {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    // Nobody answers, which some commands notice.
    if let Err(error) = submit(writer.as_raw_fd(), command) {
        assert_eq!(error.errno(), libc::EBADF);
    }
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    if let Some(offset) = response {
        assert!(
            bytes[offset..offset + 8].iter().any(|byte| *byte != 0),
            "no address"
        );
        bytes[offset..offset + 8].fill(0);
    }
    bytes
}

/// A command's bytes: number, length of all, room for a reply, and the bytes
/// that are not zero.
fn expected(number: u8, total: u16, reply: u16, set: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; total.into()];
    bytes[0] = number;
    bytes[4..6].copy_from_slice(&(total - 8).to_ne_bytes());
    bytes[6..8].copy_from_slice(&reply.to_ne_bytes());
    for (offset, value) in set {
        bytes[*offset..offset + value.len()].copy_from_slice(value);
    }
    bytes
}

fn v4() -> SockAddr {
    SockAddr::v4([192, 0, 2, 1].into(), 7174)
}

const V4: &[u8] = &[2, 0, 0x1C, 0x06, 192, 0, 2, 1];

fn ib() -> SockAddr {
    SockAddr::ib(0xFFFF, 0, [7; 16], 0x0106_0000, u64::MAX)
}

#[test]
fn identifier_commands() {
    assert_eq!(
        written(CreateId::new(0x0102, 0x0106, 2), Some(16)),
        expected(0, 32, 4, &[(8, &[2, 1]), (24, &[6, 1, 2])])
    );
    assert_eq!(
        written(DestroyId::new(9), Some(8)),
        expected(1, 24, 4, &[(16, &[9])])
    );
    assert_eq!(
        written(MigrateId::new(9, 5), Some(8)),
        expected(18, 24, 4, &[(16, &[9]), (20, &[5])])
    );
}

#[test]
fn a_port_space_that_does_not_fit_is_not_cut_to_another() {
    assert_eq!(
        written(CreateId::new(1, 0x1_0106, 0x102), Some(16)),
        expected(0, 32, 4, &[(8, &[1])])
    );
}

#[test]
fn address_commands() {
    assert_eq!(
        written(BindIp::new(9, &v4()).unwrap(), None),
        expected(2, 48, 0, &[(16, V4), (44, &[9])])
    );
    assert_eq!(
        written(Bind::new(9, &v4()), None),
        expected(20, 144, 0, &[(8, &[9]), (12, &[16]), (16, V4)])
    );
    assert_eq!(
        written(Bind::new(9, &ib()), None),
        expected(20, 144, 0, &[(8, &[9]), (12, &[48]), (16, ib().as_bytes())])
    );
    assert_eq!(
        written(ResolveIp::new(9, Some(&v4()), &v4(), 2000).unwrap(), None),
        expected(3, 72, 0, &[(8, V4), (36, V4), (64, &[9]), (68, &[0xD0, 7])])
    );
    assert_eq!(
        written(ResolveAddr::new(9, None, &v4(), 2000), None),
        expected(
            21,
            280,
            0,
            &[(8, &[9]), (12, &[0xD0, 7]), (18, &[16]), (152, V4)]
        )
    );
    assert_eq!(
        written(ResolveAddr::new(9, Some(&ib()), &v4(), 0), None),
        expected(
            21,
            280,
            0,
            &[
                (8, &[9]),
                (16, &[48, 0, 16]),
                (24, ib().as_bytes()),
                (152, V4)
            ]
        )
    );
    assert_eq!(
        written(ResolveRoute::new(9, 2000), None),
        expected(4, 16, 0, &[(8, &[9]), (12, &[0xD0, 7])])
    );
}

#[test]
fn legacy_commands_refuse_infiniband_addresses() {
    let einval = |error: Error| error.errno() == libc::EINVAL;
    assert!(BindIp::new(9, &ib()).is_err_and(einval));
    assert!(ResolveIp::new(9, None, &ib(), 1).is_err_and(einval));
    assert!(ResolveIp::new(9, Some(&ib()), &v4(), 1).is_err_and(einval));
    assert!(JoinIpMulticast::new(9, 1, &ib()).is_err_and(einval));
}

#[test]
fn query_commands() {
    let id: (usize, &[u8]) = (16, &[9]);
    assert_eq!(
        written(QueryRoute::new(9), Some(8)),
        expected(5, 24, 208, &[id])
    );
    assert_eq!(
        written(QueryAddr::new(9), Some(8)),
        expected(19, 24, 280, &[id])
    );
    let option = |option: &'static [u8]| (20, option);
    assert_eq!(
        written(QueryPath::new(9), Some(8)),
        expected(19, 24, 440, &[id, option(&[1])])
    );
    assert_eq!(
        written(QueryGid::new(9), Some(8)),
        expected(19, 24, 280, &[id, option(&[2])])
    );
}

#[test]
fn service_records_are_asked_for_with_room_for_six() {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    // A descriptor that takes the command and writes no reply: no records.
    assert_eq!(query_ib_service(writer.as_raw_fd(), 9).unwrap(), []);
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    bytes[8..16].fill(0);
    assert_eq!(
        bytes,
        expected(19, 24, 8 + 6 * 176, &[(16, &[9]), (20, &[3])])
    );
}

#[test]
fn connection_commands() {
    let mut param = ConnParam::new();
    param.set_private_data([b"he", b"llo"]).unwrap();
    (param.qp_num, param.retry_count, param.valid) = (0x11, 7, 1);
    let ece = Ece {
        vendor_id: 0x22,
        attr_mod: 0x33,
    };
    assert_eq!(
        written(Connect::new(9, &param, ece), None),
        expected(
            6,
            296,
            0,
            &[
                (8, &[0x11]),
                (16, b"hello"),
                (272, &[5]),
                (277, &[7, 0, 1]),
                (280, &[9]),
                (288, &[0x22]),
                (292, &[0x33]),
            ]
        )
    );
    param.valid = 0;
    assert_eq!(
        written(Accept::new(9, 0x44, &param, ece), None),
        expected(
            8,
            304,
            0,
            &[
                (8, &[0x44]),
                (16, &[0x11]),
                (24, b"hello"),
                (280, &[5]),
                (285, &[7, 0, 1]),
                (288, &[9]),
                (296, &[0x22]),
                (300, &[0x33]),
            ]
        )
    );
    assert_eq!(
        written(Accept::established(9), None),
        expected(8, 304, 0, &[(288, &[9])])
    );
    assert_eq!(
        written(Listen::new(9, -1), None),
        expected(7, 16, 0, &[(8, &[9]), (12, &[0xFF; 4])])
    );
    assert_eq!(
        written(Reject::new(9, b"no", 35).unwrap(), None),
        expected(9, 272, 0, &[(8, &[9]), (12, &[2, 35]), (16, b"no")])
    );
    assert_eq!(
        written(Disconnect::new(9), None),
        expected(10, 12, 0, &[(8, &[9])])
    );
    assert_eq!(
        written(InitQpAttr::new(9, 3), Some(8)),
        expected(11, 24, 144, &[(16, &[9]), (20, &[3])])
    );
    assert_eq!(
        written(Notify::new(9, 4), None),
        expected(15, 16, 0, &[(8, &[9]), (12, &[4])])
    );
}

#[test]
fn private_data_has_at_most_255_bytes() {
    let mut param = ConnParam::new();
    param.set_private_data([&[1; 255], &[]]).unwrap();
    assert_eq!(
        param
            .set_private_data([&[2; 255], &[2]])
            .unwrap_err()
            .errno(),
        libc::EINVAL
    );
    assert_eq!(param.private_data(), [1; 255]);
    param.set_private_data([&[3], &[3]]).unwrap();
    assert_eq!(param.private_data(), [3; 2]);
    let mut rest = ConnParam::new();
    rest.set_private_data([&[3], &[3]]).unwrap();
    assert_eq!(param, rest, "old data is cleared");
    assert_eq!(
        Reject::new(9, &[0; 256], 0).unwrap_err().errno(),
        libc::EINVAL
    );
}

#[test]
fn a_file_that_does_not_answer_is_no_channel() {
    let file = File::options().write(true).open("/dev/null").unwrap();
    let fd = file.as_raw_fd();
    fn refused<C: Command>(fd: RawFd, command: C) {
        let errno = submit(fd, command).map_err(|error| error.errno()).err();
        assert_eq!(errno, Some(libc::EBADF));
    }
    refused(fd, GetEvent::new());
    refused(fd, CreateId::new(8, 0x0106, 2));
    refused(fd, DestroyId::new(0));
    refused(fd, MigrateId::new(0, 3));
    refused(fd, LeaveMulticast::new(0));
}

#[test]
fn event_commands() {
    assert_eq!(
        written(GetEvent::new(), Some(8)),
        expected(12, 16, 336, &[])
    );
    assert_eq!(
        written(WriteCmEvent::new(9, 18, -5, 0x0102), None),
        expected(
            24,
            336,
            0,
            &[
                (8, &[9]),
                (16, &[18]),
                (20, &[0xFB, 0xFF, 0xFF, 0xFF]),
                (24, &[2, 1])
            ]
        )
    );
}

#[test]
fn multicast_commands() {
    assert_eq!(
        written(JoinIpMulticast::new(9, 0x44, &v4()).unwrap(), Some(8)),
        expected(16, 56, 4, &[(16, &[0x44]), (24, V4), (52, &[9])])
    );
    assert_eq!(
        written(JoinMulticast::new(9, 0x44, &v4(), 1), Some(8)),
        expected(
            22,
            160,
            4,
            &[(16, &[0x44]), (24, &[9]), (28, &[16, 0, 1]), (32, V4)]
        )
    );
    assert_eq!(
        written(LeaveMulticast::new(9), Some(8)),
        expected(17, 24, 4, &[(16, &[9])])
    );
}

#[test]
fn option_and_service_commands() {
    let value = [1u8, 2];
    // SAFETY: the value is constant.
    let command = unsafe { SetOption::new(9, 1, 3, value.as_ptr().cast(), 2) };
    let bytes = written(command, None);
    assert_eq!(bytes[8..16], (value.as_ptr().addr() as u64).to_ne_bytes());
    let mut bytes = bytes;
    bytes[8..16].fill(0);
    assert_eq!(
        bytes,
        expected(14, 32, 0, &[(16, &[9]), (20, &[1]), (24, &[3]), (28, &[2])])
    );
    assert_eq!(
        written(ResolveIbService::by_id(9, 0x0102), None),
        expected(23, 96, 0, &[(8, &[9]), (16, &[2, 1]), (88, &[1])])
    );
    assert_eq!(
        written(ResolveIbService::by_name(9, b"name").unwrap(), None),
        expected(23, 96, 0, &[(8, &[9]), (24, b"name"), (88, &[2])])
    );
    assert!(ResolveIbService::by_name(9, &[b'n'; 63]).is_ok());
    assert_eq!(
        ResolveIbService::by_name(9, &[b'n'; 64])
            .unwrap_err()
            .errno(),
        libc::EINVAL
    );
}

#[test]
fn replies_of_old_kernels_are_completed() {
    let reply = AddrReply::from_kernel(&[0; 272]);
    assert_eq!((reply.ibdev_index(), reply.port_num()), (-1, 0));
    assert_eq!((reply.src(), reply.dst()), (None, None));
    assert_eq!(RouteReply::from_kernel(&[0; 200]).ibdev_index(), -1);
    assert_eq!(KernelEvent::from_kernel(&[0xFF; 324]).ece(), Ece::default());
    assert_eq!(AddrReply::from_kernel(&[0; 280]).ibdev_index(), 0);
}

#[test]
fn recorded_address_reply() {
    let mut bytes = [0; 280];
    bytes[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    bytes[8] = 1;
    bytes[10..12].copy_from_slice(&[0xFF, 0xFF]);
    bytes[12] = 16;
    bytes[14] = 28;
    bytes[16..24].copy_from_slice(V4);
    bytes[144..146].copy_from_slice(&[10, 0]);
    bytes[144 + 23] = 1;
    bytes[272] = 3;
    let reply = AddrReply::from_kernel(&bytes);
    assert_eq!(reply.node_guid().to_ne_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        (reply.port_num(), reply.pkey(), reply.ibdev_index()),
        (1, 0xFFFF, 3)
    );
    assert_eq!(reply.src(), Some(v4()));
    assert_eq!(reply.dst().unwrap().to_string(), "[::1]:0");
    // An address that the kernel says is shorter than its family is none.
    bytes[14] = 27;
    assert_eq!(AddrReply::from_kernel(&bytes).dst(), None);
    // A size beyond the field is cut.
    bytes[14..16].fill(0xFF);
    assert_eq!(AddrReply::from_kernel(&bytes).dst(), reply.dst());
}

fn raw(gid: ibv_gid) -> Gid {
    // SAFETY: any bytes are a GID.
    unsafe { gid.raw }
}

#[test]
fn recorded_gid_reply() {
    let mut bytes = [0; 280];
    bytes[12] = 48;
    bytes[16] = 27;
    bytes[24..40].fill(7);
    let reply = GidReply::from_kernel(&bytes);
    let gids = (raw(reply.sgid()), raw(reply.dgid()));
    assert_eq!(gids, ([7; 16], [0; 16]));
}

#[test]
fn recorded_route_reply() {
    let mut bytes = [0; 208];
    bytes[8..24].fill(1);
    bytes[24..40].fill(2);
    bytes[60..62].copy_from_slice(&[0xFF, 0xFF]);
    bytes[136..144].copy_from_slice(V4);
    bytes[164..172].copy_from_slice(V4);
    bytes[196] = 1;
    let reply = RouteReply::from_kernel(&bytes);
    assert_eq!((reply.src(), reply.dst()), (Some(v4()), Some(v4())));
    let gids = (raw(reply.dgid()), raw(reply.sgid()));
    assert_eq!(gids, ([1; 16], [2; 16]));
    assert_eq!((reply.port_num(), reply.pkey()), (1, 0xFFFF));
    assert!(reply.paths().is_empty() && reply.ethernet_paths().is_empty());
    bytes[192..196].fill(0xFF);
    assert_eq!(RouteReply::from_kernel(&bytes).ethernet_paths().len(), 2);
}

#[test]
fn recorded_connection_event() {
    let mut bytes = [0; 336];
    bytes[0] = 0x44;
    bytes[8] = 9;
    bytes[12] = 8;
    bytes[16..20].copy_from_slice(&(-111i32).to_ne_bytes());
    bytes[20] = 0x11;
    bytes[28..33].copy_from_slice(b"hello");
    bytes[284..292].copy_from_slice(&[5, 1, 2, 3, 4, 5, 6, 7]);
    bytes[328] = 0x22;
    bytes[332] = 0x33;
    let event = KernelEvent::from_kernel(&bytes);
    assert_eq!(
        (event.uid(), event.id(), event.event_type(), event.status()),
        (0x44, 9, 8, -111)
    );
    let conn = event.conn();
    assert_eq!((conn.qp_num, conn.private_data()), (0x11, &b"hello"[..]));
    assert_eq!(
        (conn.srq, conn.responder_resources, conn.initiator_depth),
        (1, 2, 3)
    );
    assert_eq!(
        (conn.flow_control, conn.retry_count, conn.rnr_retry_count),
        (4, 5, 6)
    );
    assert_eq!(
        event.ece(),
        Ece {
            vendor_id: 0x22,
            attr_mod: 0x33
        }
    );
}

#[test]
fn recorded_datagram_and_user_events() {
    let mut bytes = [0; 336];
    bytes[20..28].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0, 0x67, 0x45, 0x23, 0x01]);
    bytes[28..44].fill(7);
    bytes[52] = 0x0C;
    bytes[57] = 1;
    bytes[60..65].copy_from_slice(b"hello");
    bytes[316] = 5;
    let event = KernelEvent::from_kernel(&bytes);
    let ud = event.ud();
    assert_eq!((ud.qp_num, ud.qkey), (0xFF_FFFF, 0x0123_4567));
    assert_eq!(
        (ud.ah_attr().dgid, ud.ah_attr().dlid, ud.ah_attr().is_global),
        ([7; 16], 12, 1)
    );
    assert_eq!(ud.private_data(), b"hello");
    assert_eq!(event.user_arg(), 0x0123_4567_00FF_FFFF);
}

proptest! {
    #[test]
    fn any_reply_is_taken(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let event = KernelEvent::from_kernel(&bytes);
        prop_assert!(event.conn().private_data().len() <= 255);
        prop_assert!(event.ud().private_data().len() <= 255);
        let addr = AddrReply::from_kernel(&bytes);
        let _ = (addr.src(), addr.dst());
        let gid = GidReply::from_kernel(&bytes);
        let _ = (gid.sgid(), gid.dgid());
        let route = RouteReply::from_kernel(&bytes);
        let _ = (route.src(), route.dst());
        prop_assert!(route.ethernet_paths().len() <= MAX_ROUTE_PATHS);
        prop_assert!(PathReply::from_kernel(&bytes).to_verbs().len() <= MAX_PATHS);
        let _ = QpAttr::from_kernel(&bytes);
    }

    #[test]
    fn private_data_comes_back(data in prop::collection::vec(any::<u8>(), 0..=255)) {
        let mut param = ConnParam::new();
        param.set_private_data([&data, &[]]).unwrap();
        prop_assert_eq!(param.private_data(), &data[..]);
        let again = ConnParam::from_prefix(param.as_bytes());
        prop_assert_eq!(again, param);
    }
}
