//! What works across the link: unmodified programs and datagrams to groups,
//! servers and members on the other machine.

use std::convert::identity;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::end::{End, PEER_IP};
use super::remote::Remote;
use crate::guest::{Bench, device, ip, program, rping, variable};
use crate::library::Library;
use crate::report::Suite;
use crate::test::pairing::SLOWLY;

/// A server for the other machine and its client for this one. `$IP` stands
/// for the server's address, `$HERE` for the client's.
struct Row {
    name: &'static str,
    server: &'static str,
    client: &'static str,
    /// What the client prints when all is well.
    pattern: &'static str,
    /// What the server prints when it is ready; it listens then if empty.
    ready: &'static str,
    /// What comes before the words of the client to hold it up, as [`SLOWLY`] does.
    held: &'static str,
    /// Whether it went well, by how a program ended.
    verdict: fn(Result<()>) -> Result<()>,
}

const ROWS: &[Row] = &[
    Row {
        name: "rping",
        server: "rping -s -a $IP -C 3 -v -V",
        client: "rping -c -a $IP -C 3 -v -V",
        pattern: "ping data",
        ready: "",
        held: "",
        verdict: rping::verdict,
    },
    Row {
        name: "ucmatose",
        server: "ucmatose -b $IP -c 5 -C 5",
        client: "ucmatose -s $IP -c 5 -C 5",
        pattern: "return status 0",
        ready: "",
        held: "",
        verdict: identity,
    },
    Row {
        name: "udaddy",
        server: "udaddy -b $IP -c 2 -C 5",
        client: "udaddy -s $IP -c 2 -C 5",
        pattern: "return status 0",
        ready: "",
        held: "",
        verdict: identity,
    },
    Row {
        name: "mckey",
        server: "mckey -m 239.1.1.1 -b $IP -c 1 -C 5",
        client: "mckey -m 239.1.1.1 -b $HERE -c 1 -C 5 -s",
        pattern: "return status 0",
        ready: "joined dgid",
        held: SLOWLY,
        verdict: identity,
    },
];

/// A group that no program uses by itself.
const GROUP: &str = "239.98.1.1";
const PORT: u16 = 7650;

/// How long a datagram may take to a member on a loaded machine.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Runs all of it, in every pairing that has ours on a side.
pub fn run(bench: &Bench, remote: &Remote, suite: &mut Suite) -> Result<()> {
    let (ours, original) = (&bench.ours, &Library::Original);
    let pairings = [(ours, ours), (ours, original), (original, ours)];
    for (port, (there, here)) in (PORT..).zip(pairings) {
        let pairing = format!("{} there, {} here", there.name(), here.name());
        for row in ROWS {
            let name = format!("{}: {pairing}", row.name);
            suite.check(name, run_row(row, remote, there, here));
        }
        let result = group(bench, remote, there, here, port);
        suite.check(
            format!("datagrams to a group, both ways: {pairing}"),
            result,
        );
    }
    Ok(())
}

fn run_row(row: &Row, remote: &Remote, there: &Library, here: &Library) -> Result<()> {
    let (peer, own) = (variable(PEER_IP)?, ip()?);
    let packets = device::sent_packets()?;
    let server = remote.start(&row.server.replace("$IP", &peer), there)?;
    if row.ready.is_empty() {
        server.wait_listening()?;
    } else {
        server.wait_printed(row.ready)?;
    }
    let mapped = server.mapped()?;
    ensure!(there.is(&mapped), "the server runs on {}", mapped.display());

    let command = row.client.replace("$IP", &peer).replace("$HERE", &own);
    let words: Vec<_> = row
        .held
        .split_whitespace()
        .chain(command.split(' '))
        .collect();
    let mut client = program::start(&words, here)?;
    let ended = (row.verdict)(client.wait_success());
    let said = || server.output().unwrap_or_default();
    ended.with_context(|| format!("the server said: {}", said()))?;
    ensure!(
        client.output().contains(row.pattern),
        "no \"{}\" in {}",
        row.pattern,
        client.said()
    );
    (row.verdict)(server.wait_success())?;
    ensure!(
        device::sent_packets()? > packets,
        "no packet was sent by the RDMA device"
    );
    Ok(())
}

/// A member on each machine; each gets what the other sends.
fn group(bench: &Bench, remote: &Remote, there: &Library, here: &Library, port: u16) -> Result<()> {
    let mut far = End::there(remote, bench, there, port)?;
    let mut near = End::here(bench, here, port)?;
    far.must(
        &format!("join {} {GROUP}", variable(PEER_IP)?),
        "MULTICAST_JOIN",
    )?;
    near.must(&format!("join {} {GROUP}", ip()?), "MULTICAST_JOIN")?;
    for (sender, receiver) in [(0, 1), (1, 0)] {
        let members = [&mut near, &mut far];
        members[receiver].tell("receive-group")?;
        members[sender].must("send-group", "completion")?;
        let got = members[receiver].answer()?;
        got.demand("completion", 0, ARRIVAL)?;
    }
    near.must("destroy", "errno")?;
    far.must("destroy", "errno")
}
