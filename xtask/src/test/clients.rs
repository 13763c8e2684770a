<<<<<<< HEAD
//! Suite `clients`: unmodified programs of the distribution's rdmacm-utils and
//! perftest, in every pairing of our library and the original that has ours on
//! a side.
//!
//! A pass needs: both sides end with success (a server that never ends by
//! itself is ended after its client), the client printed the pattern, the
//! server had the intended library mapped, and the RDMA device sent packets.
//!
//! Not here: rdma_xserver and rdma_xclient with XRC, and udpong, which fail on
//! soft-RoCE with the original too.
=======
//! Suite `clients`: unmodified programs of the distribution's rdmacm-utils, in
//! every pairing of our library and the original that has ours on a side (see
//! [`super::pairing`]). Those on sockets are in [`super::interop`].
//!
//! Not here: rdma_xserver and rdma_xclient with XRC, which fail on soft-RoCE
//! with the original too; and perftest, whose client makes a second connection
//! that races with its server's second listen.
>>>>>>> c48cb7c (Prove interoperation of sockets in a suite of its own)

use std::process::Command;

use anyhow::Result;

use super::pairing::{self, End, Row};
use crate::guest::Bench;
use crate::guest::program::Ready;
use crate::report::Suite;

<<<<<<< HEAD
/// How the programs end.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// Both with success.
    Itself,
    /// The client with success; the server has to be ended.
    Killed,
    /// However they like: the pattern alone decides.
    NotJudged,
}

/// A server program with its clients. `$IP` and `$IP6` stand for addresses,
/// `$DEV` for the RDMA device.
struct Row {
    name: &'static str,
    server: &'static str,
    client: &'static str,
    /// Clients that run at the same time.
    clients: usize,
    pattern: &'static str,
    ready: Ready,
    end: End,
    /// Whether the clients are held up, as [`SLOWLY`] does.
    slowly: bool,
}

/// Before the words of a client: each of its commands to the connection manager
/// takes a tenth of a second longer.
///
/// The server of perftest destroys its first listener and listens anew, while
/// its client, without waiting for it, connects a second time. With the original
/// on both sides the client is rejected (reason 8, nobody listens) in 2 of 8
/// runs of ib_read_lat on Linux 6.12, and in 8 of 8 if the server's commands take
/// 50 ms longer.
const SLOWLY: &str = "strace -D -f -o /dev/null -P /dev/infiniband/rdma_cm -e trace=write \
                      -e inject=write:delay_enter=100000";

impl Row {
    const fn new(
        name: &'static str,
        server: &'static str,
        client: &'static str,
        pattern: &'static str,
    ) -> Self {
        Self {
            name,
            server,
            client,
            clients: 1,
            pattern,
            ready: Ready::Listening,
            end: End::Itself,
            slowly: false,
        }
    }
}

/// A program of perftest with its connection made by librdmacm; it passes when
/// it prints a result of its 50 rounds.
macro_rules! perftest {
    ($command:literal) => {
        Row {
            slowly: true,
            ..Row::new(
                $command,
                concat!($command, " -F -d $DEV -R -n 50"),
                concat!($command, " -F -d $DEV -R -n 50 $IP"),
                "  50  ",
            )
        }
    };
}

=======
>>>>>>> c48cb7c (Prove interoperation of sockets in a suite of its own)
const ROWS: &[Row] = &[
    Row::new(
        "rping",
        "rping -s -a $IP -C 3 -v",
        "rping -c -a $IP -C 3 -v",
        "ping data",
    ),
    Row::new(
        "rping, data verified",
        "rping -s -a $IP -C 5 -v -V",
        "rping -c -a $IP -C 5 -v -V",
        "ping data",
    ),
    Row::new(
        "rping, IPv6",
        "rping -s -a $IP6 -C 5 -v -V",
        "rping -c -a $IP6 -C 5 -v -V",
        "ping data",
    ),
    Row::new(
        "rping, own QP",
        "rping -s -q -a $IP -C 5 -v",
        "rping -c -q -a $IP -C 5 -v",
        "ping data",
    ),
    Row {
        clients: 3,
        end: End::Killed,
        ..Row::new(
            "rping, persistent server, three clients",
            "rping -s -P -a $IP -v",
            "rping -c -a $IP -C 5 -v",
            "ping data",
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
        ..Row::new(
            "mckey",
            "mckey -m 239.1.1.1 -b $IP -c 2 -C 10",
            "mckey -m 239.1.1.1 -b $IP -c 2 -C 10 -s",
            "return status 0",
        )
    },
    Row::new(
        "rdma_server, rdma_client",
        "rdma_server -s $IP -p 7481",
        "rdma_client -s $IP -p 7481",
        "rdma_client: end 0",
    ),
    Row::new(
        "rdma_xserver, rdma_xclient",
        "rdma_xserver -p 7482 -c r",
        "rdma_xclient -s $IP -p 7482 -c r",
        "end 0",
    ),
<<<<<<< HEAD
    Row::new(
        "rstream",
        "rstream -b $IP -S 1024 -C 100",
        "rstream -s $IP -S 1024 -C 100",
        "",
    ),
    Row::new(
        "rstream, verifying",
        "rstream -b $IP -S 65536 -C 20 -T v",
        "rstream -s $IP -S 65536 -C 20 -T v",
        "",
    ),
    Row::new(
        "rstream, non-blocking",
        "rstream -b $IP -S 1024 -C 100 -T n",
        "rstream -s $IP -S 1024 -C 100 -T n",
        "",
    ),
    Row::new(
        "riostream, verifying",
        "riostream -b $IP -S 65536 -C 20 -T v",
        "riostream -s $IP -S 65536 -C 20 -T v",
        "",
    ),
    perftest!("ib_read_lat"),
    perftest!("ib_send_lat"),
    perftest!("ib_write_bw"),
    perftest!("ib_send_bw -c UD"),
    perftest!("ib_atomic_bw"),
=======
>>>>>>> c48cb7c (Prove interoperation of sockets in a suite of its own)
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
    Ok(())
}
<<<<<<< HEAD

fn run(row: &Row, server: &Library, client: &Library) -> Result<()> {
    let packets = device::sent_packets()?;
    let words = expand(row.server)?;
    let mut serving = program::start(&borrow(&words), server)?;
    serving.wait_ready(row.ready)?;
    let mapped = serving.mapped()?;
    ensure!(
        server.is(&mapped),
        "the server runs on {}",
        mapped.display()
    );

    let mut words = expand(row.client)?;
    if row.slowly {
        words.splice(0..0, SLOWLY.split_whitespace().map(str::to_owned));
    }
    let mut clients = Vec::new();
    for _ in 0..row.clients {
        clients.push(program::start(&borrow(&words), client)?);
    }
    for client in &mut clients {
        let status = client.wait()?;
        if row.end != End::NotJudged && !status.success() {
            bail!(
                "client: {status}: {}; server: {}",
                client.said(),
                serving.said()
            );
        }
        let said = client.output();
        ensure!(
            said.contains(row.pattern),
            "no \"{}\" in {}",
            row.pattern,
            client.said()
        );
    }
    if row.end == End::Itself {
        serving.wait_success()?;
    }
    ensure!(
        device::sent_packets()? > packets,
        "no packet was sent by the RDMA device"
    );
    Ok(())
}

fn borrow(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
=======
>>>>>>> c48cb7c (Prove interoperation of sockets in a suite of its own)
