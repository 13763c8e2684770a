//! What can be told without a device: nothing is crashed by what is not there.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use super::channel::*;
use super::cm::*;
use super::command::*;
use super::device::*;
use super::ioctx::*;
use super::queue_pair::*;
use super::types::*;
use super::unit::*;

unsafe extern "C" fn plan(_: *mut c_void, _: *const srpt_cmd, _: *mut u32) -> srpt_direction {
    SRPT_NO_DATA
}

fn ops() -> srpt_ops {
    srpt_ops {
        admit: None,
        plan: Some(plan),
        execute: None,
        abort: None,
        reset: None,
    }
}

fn attr(ops: &srpt_ops, credits: u32) -> srpt_port_attr {
    srpt_port_attr {
        port_id: [1; 16],
        credits,
        max_imm_data: 0,
        max_transfer: 0,
        pool_size: 0,
        qp_policy: SRPT_QP_CURRENT,
        pd: null_mut(),
        ops,
        context: null_mut(),
    }
}

#[test]
fn null_is_refused_or_ignored_by_every_function() {
    let (mut word, mut long) = (0u32, 0u64);
    let invalid = -libc::EINVAL;
    // SAFETY: all of them say what they do with NULL.
    unsafe {
        assert!(srpt_add_one(null()).is_null());
        srpt_remove_one(null_mut());
        assert_eq!(srpt_release_sport(null_mut()), invalid);
        assert_eq!(srpt_close_session(null_mut(), null()), invalid);
        assert_eq!(srpt_parse_i_port_id(null_mut(), null()), invalid);

        assert_eq!(srpt_cm_handler(null_mut(), null()), invalid);
        assert_eq!(
            srpt_cm_req_recv(null_mut(), null_mut(), 1, 0xFFFF, null(), null()),
            invalid
        );
        srpt_cm_rtu_recv(null_mut());

        assert_eq!(srpt_init_ch_qp(null_mut(), null_mut()), invalid);
        assert_eq!(srpt_ch_qp_rtr(null_mut(), null_mut()), invalid);
        assert_eq!(srpt_ch_qp_rts(null_mut(), null_mut()), invalid);
        assert_eq!(srpt_ch_qp_err(null_mut()), invalid);
        assert_eq!(srpt_create_ch_ib(null_mut()), invalid);
        srpt_destroy_ch_ib(null_mut());
        srpt_qp_event(null(), null_mut());
        srpt_srq_event(null(), null_mut());

        assert_eq!(srpt_poll_ch(null_mut()), invalid);
        assert_eq!(srpt_ch_fd(null()), invalid);
        assert_eq!(srpt_get_ch_state(null()), CH_DISCONNECTED);
        assert_eq!(srpt_disconnect_ch(null_mut()), invalid);
        assert!(!srpt_close_ch(null_mut()));
        assert_eq!(srpt_zerolength_write(null_mut()), invalid);
        srpt_free_ch(null_mut());

        assert_eq!(srpt_queue_response(null_mut(), null()), invalid);
        assert_eq!(srpt_abort_cmd(null_mut()), invalid);
        assert_eq!(
            srpt_set_cmd_state(null_mut(), SRPT_STATE_NEW),
            SRPT_STATE_DONE
        );
        assert!(!srpt_test_and_set_cmd_state(
            null_mut(),
            SRPT_STATE_NEW,
            SRPT_STATE_DONE
        ));
        assert_eq!(srpt_build_cmd_rsp(null_mut(), null_mut(), 0, 0), invalid);
        assert_eq!(
            srpt_build_tskmgmt_rsp(null_mut(), null_mut(), 0, 0),
            invalid
        );
        assert!(srpt_rsp_buf(null()).is_null());

        assert!(srpt_recv_done(null_mut(), null()).is_null());
        srpt_send_done(null(), null());
        srpt_rdma_read_done(null_mut(), null());
        assert!(!srpt_handle_new_iu(null_mut(), null_mut()));
        assert!(srpt_get_send_ioctx(null_mut()).is_null());
        srpt_handle_cmd(null_mut(), null_mut(), null_mut());
        srpt_handle_tsk_mgmt(null_mut(), null_mut(), null_mut());
        assert_eq!(
            srpt_get_desc_tbl(null(), &mut word, null_mut(), &mut word.clone(), &mut long),
            invalid
        );
        assert!(srpt_recv_buf(null(), &mut word).is_null());
        assert_eq!(srpt_post_recv(null_mut(), null_mut(), null_mut()), invalid);

        assert!(srpt_alloc_ioctx(null_mut(), 64, 64, SRPT_DATA_IN).is_null());
        srpt_free_ioctx(null_mut(), null_mut());
        assert!(srpt_alloc_ioctx_ring(null_mut(), 2, 64, 64, SRPT_DATA_IN).is_null());
        srpt_free_ioctx_ring(null_mut(), null_mut(), 2);
    }
}

#[test]
fn devices_are_made_with_functions_and_a_sensible_number_of_credits() {
    let ops = ops();
    // SAFETY: the attributes are valid, but for the functions that are not
    // there.
    unsafe {
        let mut without = attr(&ops, 0);
        without.ops = null();
        assert!(srpt_add_one(&without).is_null());
        for credits in [1, 1025] {
            assert!(srpt_add_one(&attr(&ops, credits)).is_null());
        }
        for credits in [0, 2, 1024] {
            let device = srpt_add_one(&attr(&ops, credits));
            assert!(!device.is_null());
            assert_eq!(srpt_close_session(device, [0; 16].as_ptr()), 0);
            assert!(srpt_alloc_ioctx(device, 64, 64, SRPT_DATA_IN).is_null());
            assert_eq!(srpt_release_sport(device), 0);
            srpt_remove_one(device);
        }
    }
}

#[test]
fn a_pool_holds_the_data_of_the_largest_command_and_its_list() {
    let ops = ops();
    let cases = [
        (0, 0, true),
        (0, (2 << 20) - 1, false),
        (0, 2 << 20, true),
        (512, 8191, false),
        (512, 8192, true),
        (100_000, 199_999, false),
        (100_000, 200_000, true),
        (64 << 20, 0, true),
        (64 << 20, 32 << 20, false),
        (u32::MAX, u64::from(u32::MAX), false),
    ];
    for (max_transfer, pool_size, fits) in cases {
        let mut attr = attr(&ops, 0);
        (attr.max_transfer, attr.pool_size) = (max_transfer, pool_size);
        // SAFETY: the attributes are valid, and no channel lives.
        unsafe {
            let device = srpt_add_one(&attr);
            assert_eq!(!device.is_null(), fits, "{max_transfer} {pool_size}");
            srpt_remove_one(device);
        }
    }
}

#[test]
fn initiator_ports_are_read_as_the_kernel_does() {
    let parse = |text: &str| {
        let mut port = [0xAA; 16];
        let text = CString::new(text).unwrap();
        // SAFETY: room for 16 bytes and a string.
        let status = unsafe { srpt_parse_i_port_id(port.as_mut_ptr(), text.as_ptr()) };
        (status == 0).then_some(port)
    };
    let mut low = [0; 16];
    low[14..].copy_from_slice(&[0xBE, 0xEF]);
    assert_eq!(parse("0xbeef"), Some(low));
    assert_eq!(parse("BEEF"), Some(low));
    assert_eq!(parse("bee"), None);
    assert_eq!(parse(""), None);
}
