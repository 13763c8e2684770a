//! Suite `clients`: unmodified programs of the distribution's rdmacm-utils and
//! perftest, in every pairing of our library and the original that has ours on
//! a side (see [`super::pairing`]). Those on sockets are in [`super::interop`].
//! And one of ours that is linked to the static library ([`super::fixed`]).
//!
//! Not here: rdma_xserver and rdma_xclient with XRC, which fail on soft-RoCE
//! with the original too.

use std::process::Command;

use anyhow::Result;

use super::fixed;
use super::pairing::{self, End, Row, SLOWLY, SLOWLY_ON_DEVICE};
use crate::guest::Bench;
use crate::guest::program::Ready;
use crate::guest::rping;
use crate::report::Suite;

/// A program of perftest with its connection made by librdmacm; it passes when
/// it prints a result of its 50 rounds.
macro_rules! perftest {
    ($command:literal) => {
        Row {
            held: SLOWLY,
            ..Row::new(
                $command,
                concat!($command, " -F -d $DEV -R -n 50"),
                concat!($command, " -F -d $DEV -R -n 50 $IP"),
                "  50  ",
            )
        }
    };
}

const fn rping(name: &'static str, server: &'static str, client: &'static str) -> Row {
    Row {
        verdict: rping::verdict,
        ..Row::new(name, server, client, "ping data")
    }
}

const ROWS: &[Row] = &[
    rping(
        "rping",
        "rping -s -a $IP -C 3 -v",
        "rping -c -a $IP -C 3 -v",
    ),
    rping(
        "rping, data verified",
        "rping -s -a $IP -C 5 -v -V",
        "rping -c -a $IP -C 5 -v -V",
    ),
    rping(
        "rping, IPv6",
        "rping -s -a $IP6 -C 5 -v -V",
        "rping -c -a $IP6 -C 5 -v -V",
    ),
    rping(
        "rping, own QP",
        "rping -s -q -a $IP -C 5 -v",
        "rping -c -q -a $IP -C 5 -v",
    ),
    Row {
        clients: 3,
        end: End::Killed,
        ..rping(
            "rping, persistent server, three clients",
            "rping -s -P -a $IP -v",
            "rping -c -a $IP -C 5 -v",
        )
    },
    Row::new(
        "ucmatose",
        "ucmatose -b $IP -c 10 -C 10",
        "ucmatose -s $IP -c 10 -C 10",
        "return status 0",
    ),
    Row::new(
        "ucmatose, migrating",
        "ucmatose -b $IP -c 10 -C 10 -m",
        "ucmatose -s $IP -c 10 -C 10 -m",
        "return status 0",
    ),
    Row::new(
        "udaddy",
        "udaddy -b $IP -c 5 -C 10",
        "udaddy -s $IP -c 5 -C 10",
        "return status 0",
    ),
    Row {
        ready: Ready::Printed("joined dgid", 2),
        held: SLOWLY,
        ..Row::new(
            "mckey",
            "mckey -m 239.1.1.1 -b $IP -c 2 -C 10",
            "mckey -m 239.1.1.1 -b $IP -c 2 -C 10 -s",
            "return status 0",
        )
    },
    Row {
        held: SLOWLY_ON_DEVICE,
        ..Row::new(
            "rdma_server, rdma_client",
            "rdma_server -s $IP -p 7481",
            "rdma_client -s $IP -p 7481",
            "rdma_client: end 0",
        )
    },
    Row {
        held: SLOWLY_ON_DEVICE,
        ..Row::new(
            "rdma_xserver, rdma_xclient",
            "rdma_xserver -p 7482 -c r",
            "rdma_xclient -s $IP -p 7482 -c r",
            "end 0",
        )
    },
    perftest!("ib_read_lat"),
    perftest!("ib_send_lat"),
    perftest!("ib_write_bw"),
    perftest!("ib_send_bw -c UD"),
    perftest!("ib_atomic_bw"),
];

/// cmtime as rdma-core had it for long.
const CMTIME: Row = Row {
    end: End::Killed,
    ..Row::new(
        "cmtime",
        "cmtime -p 7480 -c 50",
        "cmtime -s $IP -p 7480 -c 50",
        "",
    )
};

/// cmtime with a TCP connection between its two sides. After its phase with
/// QPs, which is judged here, it goes on to one without, in which the original
/// is rejected on soft-RoCE just the same.
const CMTIME_CONTROLLED: Row = Row {
    ready: Ready::ListeningOnTcp(7480),
    end: End::NotJudged,
    ..Row::new(
        "cmtime, with QPs",
        "cmtime -L -b $IP -C $IP -p 7480 -c 20",
        "cmtime -b $IP -C $IP -p 7480 -c 20",
        "Connect (20) test - no QPs",
    )
};

/// The rows for the programs that are installed.
fn rows() -> Result<Vec<&'static Row>> {
    let usage = Command::new("cmtime").arg("-h").output()?;
    let usage = String::from_utf8_lossy(&usage.stdout).into_owned()
        + &String::from_utf8_lossy(&usage.stderr);
    let cmtime = if usage.contains("[-L]") {
        &CMTIME_CONTROLLED
    } else {
        &CMTIME
    };
    Ok(ROWS.iter().chain([cmtime]).collect())
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    for row in rows()? {
        pairing::check(row, bench, suite);
    }
    fixed::run(bench, suite);
    Ok(())
}
