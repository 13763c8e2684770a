//! Programs in every pairing of our library and the original that has ours on
//! a side; with `--quick`, on ours only.
//!
//! A pass needs: both sides end with success (a server that never ends by
//! itself is ended after its client), the client printed the pattern, the
//! server had the intended library mapped, and the RDMA device sent packets.

use std::convert::identity;

use anyhow::{Context, Result, ensure};

use crate::guest::program::{self, Ready};
use crate::guest::{Bench, device, expand};
use crate::library::Library;
use crate::report::Suite;

/// How the programs end.
#[derive(Clone, Copy, PartialEq)]
pub enum End {
    /// Both with success.
    Itself,
    /// The client with success; the server has to be ended.
    Killed,
    /// However they like: the pattern alone decides.
    NotJudged,
}

/// A server program with its clients. `$IP` and `$IP6` stand for addresses,
/// `$DEV` for the RDMA device.
pub struct Row {
    /// What it is called.
    pub name: &'static str,
    /// Command of the server.
    pub server: &'static str,
    /// Command of a client.
    pub client: &'static str,
    /// Clients that run at the same time.
    pub clients: usize,
    /// What a client prints.
    pub pattern: &'static str,
    /// When a client may start.
    pub ready: Ready,
    /// How the programs end.
    pub end: End,
    /// What comes before the words of a client to hold it up, as [`SLOWLY`] does.
    pub held: &'static str,
    /// Whether it went well, by how a program ended: some have races of their own.
    pub verdict: fn(Result<()>) -> Result<()>,
    /// The original does well as the client.
    pub original_client: bool,
    /// And as the server.
    pub original_server: bool,
}

/// Before the words of a client: each of its commands to the connection manager
/// takes a tenth of a second longer.
///
/// The server of perftest destroys its first listener and listens anew, while
/// its client, without waiting for it, connects a second time. With the original
/// on both sides the client is rejected (reason 8, nobody listens) in 2 of 8
/// runs of ib_read_lat on Linux 6.12, and in 8 of 8 if the server's commands take
/// 50 ms longer.
///
/// The sender of mckey destroys its queue pairs without waiting for its sends to
/// complete; soft-RoCE of Linux 7.3 drops those that it has not begun with. With
/// the original as sender 2 of 92 runs sent 4 and 1 of 20 datagrams, fewer than
/// the 10 that a receiver waits for.
pub const SLOWLY: &str = "strace -D -f -o /dev/null -P /dev/infiniband/rdma_cm -e trace=write \
                      -e inject=write:delay_enter=100000";

/// As [`SLOWLY`], for calls to the RDMA device.
///
/// A client that disconnects as soon as it has received puts its queue pair into
/// error. If that comes before soft-RoCE of Linux 7.3 has confirmed the message, which
/// it does after it has reported it, it never does, and the server, whose send has no
/// end of retries, waits for ever for its completion. With the original on both sides
/// rdma_server did in 1 of 100 runs.
pub const SLOWLY_ON_DEVICE: &str = "strace -D -f -o /dev/null -P /dev/infiniband/uverbs0 \
                      -e trace=write,ioctl -e inject=write,ioctl:delay_enter=100000";

impl Row {
    /// One client and a server that both end by themselves; the client prints
    /// `pattern`.
    pub const fn new(
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
            held: "",
            verdict: identity,
            original_client: true,
            original_server: true,
        }
    }
}

/// Checks a row in every pairing.
pub fn check(row: &Row, bench: &Bench, suite: &mut Suite) {
    check_and(row, bench, suite, || Ok(()));
}

/// As [`check`]; after each run `afterwards` has to succeed as well.
pub fn check_and(row: &Row, bench: &Bench, suite: &mut Suite, afterwards: impl Fn() -> Result<()>) {
    let ours = &bench.ours;
    let mut pairs = vec![(ours, ours)];
    if !bench.quick && row.original_server {
        pairs.push((&Library::Original, ours));
    }
    if !bench.quick && row.original_client {
        pairs.push((ours, &Library::Original));
    }
    for (server, client) in pairs {
        let name = format!(
            "{}: server on {}, client on {}",
            row.name,
            server.name(),
            client.name()
        );
        suite.check(name, run(row, server, client).and_then(|()| afterwards()));
    }
}

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
    words.splice(0..0, row.held.split_whitespace().map(str::to_owned));
    let mut clients = Vec::new();
    for place in 0..row.clients {
        let mut client = program::start(&borrow(&words), client)?;
        // rping has room for one request: of two that come before it has looked at
        // the first, which happens to the original with ten clients, one is lost.
        if place + 1 < row.clients {
            client.wait_until("connected", |client| {
                let has_been = client.output().contains(row.pattern);
                Ok(has_been || device::connections(client.pid())? > 0)
            })?;
        }
        clients.push(client);
    }
    for client in &mut clients {
        client.wait()?;
        if row.end != End::NotJudged {
            (row.verdict)(client.wait_success())
                .with_context(|| format!("client; the server said {}", serving.said()))?;
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
        (row.verdict)(serving.wait_success()).context("server")?;
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
