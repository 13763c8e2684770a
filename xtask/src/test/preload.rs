//! Suite `preload`: unmodified programs on sockets over RDMA through
//! `librspreload.so`, and socket calls that programs make, case by case.
//!
//! A program passes when both sides end as they should, what arrived is what
//! was sent, and the RDMA device sent at least as many packets as that takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::compile;
use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, device, expand, ip};
use crate::library::{Library, PRELOAD};
use crate::report::{Outcome, Suite};
use crate::workspace;

/// Two programs of which one sends [`FROM`] to the other. Both are for a
/// shell; `$IP` stands for the address on the RDMA device.
struct Row {
    name: &'static str,
    /// What they are, as in the path.
    programs: &'static [&'static str],
    server: &'static str,
    client: &'static str,
    /// The server goes on when its client has ended.
    goes_on: bool,
    /// What arrives goes to [`TO`].
    copies: bool,
    /// Both with `RDMAV_FORK_SAFE`, and the server listens by TCP at this port.
    forks: Option<u16>,
}

const FROM: &str = "/tmp/preload-from";
const TO: &str = "/tmp/preload-to";

/// Bytes that are sent.
const LENGTH: u32 = 1_000_003;
/// Most bytes of a packet.
const PACKET: u64 = 4096;

const ROWS: &[Row] = &[
    Row {
        name: "nc sends a file to nc",
        programs: &["nc.openbsd"],
        server: "nc.openbsd -l -N $IP 7601 > /tmp/preload-to",
        client: "nc.openbsd -N $IP 7601 < /tmp/preload-from",
        goes_on: false,
        copies: true,
        forks: None,
    },
    Row {
        name: "socat sends a file to socat",
        programs: &["socat"],
        server: "socat -u TCP-LISTEN:7602,bind=$IP OPEN:/tmp/preload-to,creat",
        client: "socat -u OPEN:/tmp/preload-from TCP:$IP:7602",
        goes_on: false,
        copies: true,
        forks: None,
    },
    Row {
        name: "curl fetches a file from Python's http.server",
        programs: &["python3", "curl"],
        server: "/usr/bin/python3 -m http.server 7603 --bind $IP --directory /tmp",
        client: "curl --silent --fail --output /tmp/preload-to http://$IP:7603/preload-from",
        goes_on: true,
        copies: true,
        forks: None,
    },
    Row {
        name: "iperf3 sends to iperf3",
        programs: &["iperf3"],
        server: "iperf3 --server --one-off --bind $IP --port 7604",
        client: "iperf3 --client $IP --port 7604 --bytes 1000003",
        goes_on: false,
        copies: false,
        forks: None,
    },
    Row {
        name: "iperf3 receives from iperf3 on three streams",
        programs: &["iperf3"],
        server: "iperf3 --server --one-off --bind $IP --port 7605",
        client: "iperf3 --client $IP --port 7605 --bytes 1000003 --reverse --parallel 3",
        goes_on: false,
        copies: false,
        forks: None,
    },
    Row {
        name: "socat forks to send a file back",
        programs: &["socat"],
        server: "socat TCP-LISTEN:7608,bind=$IP,fork EXEC:cat",
        client: "socat -t 60 - TCP:$IP:7608 < /tmp/preload-from > /tmp/preload-to",
        goes_on: true,
        copies: true,
        forks: Some(7608),
    },
    Row {
        name: "curl fetches a file twice from nginx over one connection",
        programs: &["nginx", "curl"],
        server: concat!(
            "nginx -p /tmp/ -e /dev/null -g 'daemon off; master_process off; pid /tmp/preload-nginx;' ",
            "-c $DATA/nginx.conf"
        ),
        client: "curl --silent --fail --output /tmp/preload-to http://$IP:7609/preload-from \
                 --output /tmp/preload-to http://$IP:7609/preload-from",
        goes_on: true,
        copies: true,
        forks: None,
    },
    Row {
        name: "redis-benchmark with redis-server, pipelined",
        programs: &["redis-server", "redis-benchmark"],
        server: "redis-server --bind $IP --port 7610 --protected-mode no --save ''",
        client: "redis-benchmark -h $IP -p 7610 -t set,get -n 200 -c 5 -P 4 -d 5000 --threads 2",
        goes_on: true,
        copies: false,
        forks: None,
    },
    Row {
        name: "Python asks memcached",
        programs: &["memcached", "python3"],
        server: "memcached -u root -l $IP -p 7611 -U 0 -t 2",
        client: "/usr/bin/python3 $DATA/memcached.py $IP 7611",
        goes_on: true,
        copies: false,
        forks: None,
    },
];

/// A program that forks for each connection, with `RDMAV_FORK_SAFE`: begins by
/// TCP and goes over to RDMA. Its server and its client, and their port.
const FORKING: [&str; 2] = [
    "rstream -T f -b $IP -p 7606 -S 1024 -C 100",
    "rstream -T f -s $IP -p 7606 -S 1024 -C 100",
];
const FORKING_PORT: u16 = 7606;
const FORKING_NAME: &str = "rstream forks";

/// The longest that the calls may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Programs of cases, each with its C file.
const CALLS: [(&str, &str); 3] = [
    ("preload-calls", "preload/calls.c"),
    ("preload-hard", "preload/hard.c"),
    ("preload-killed", "preload/killed.c"),
];

/// The C sources of those programs, seen from `xtask/programs`.
pub fn sources() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|(_, source)| *source)
}

/// The names of the other cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name).chain([FORKING_NAME])
}

/// Compiles them and returns their folder.
pub fn build() -> Result<PathBuf> {
    let mut folder = PathBuf::new();
    for (program, source) in CALLS {
        folder = compile(
            &["preload/harness.c", source],
            program,
            &["-D_GNU_SOURCE", "-D_FORTIFY_SOURCE=2"],
        )?;
    }
    Ok(folder)
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    for (program, _) in CALLS {
        calls(program, bench, suite)?;
    }
    // Of no round size and without a period that a buffer may have.
    let data: Vec<u8> = (0..LENGTH)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(FROM, &data)?;
    for row in ROWS {
        match row.programs.iter().find(|name| !is_there(name)) {
            Some(name) => suite.record(row.name, Outcome::Skipped(format!("no {name} here"))),
            None => suite.check(row.name, run(row, bench, &data)),
        }
    }
    let (ours, original) = (&bench.ours, &Library::Original);
    for (server, client) in [(ours, ours), (ours, original), (original, ours)] {
        let (on, by) = (server.name(), client.name());
        suite.check(
            format!("{FORKING_NAME}: server on {on}, client on {by}"),
            fork(server, client),
        );
    }
    Ok(())
}

fn fork(server: &Library, client: &Library) -> Result<()> {
    let packets = device::sent_packets()?;
    let begin = |command: &str, library: &Library| {
        let words = expand(command)?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let preload = preload(library)?;
        let preload = preload.to_str().context("path of the library")?;
        let env = [("LD_PRELOAD", preload), ("RDMAV_FORK_SAFE", "1")];
        program::start_with(&words, library, &env)
    };
    let mut serving = begin(FORKING[0], server)?;
    serving.wait_ready(Ready::ListeningOnTcp(FORKING_PORT))?;
    begin(FORKING[1], client)?
        .wait_success()
        .with_context(|| format!("server: {}", serving.said()))?;
    serving.wait_success()?;
    let sent = device::sent_packets()?.saturating_sub(packets);
    // 100 times there and back.
    ensure!(sent >= 200, "the RDMA device sent {sent} packets");
    Ok(())
}

/// Whether a program is installed.
fn is_there(name: &str) -> bool {
    ["/usr/bin", "/usr/sbin"]
        .iter()
        .any(|folder| Path::new(folder).join(name).exists())
}

/// The preload library that belongs to a librdmacm.
fn preload(library: &Library) -> Result<PathBuf> {
    if let Library::Ours(folder) = library {
        return Ok(folder.join(PRELOAD));
    }
    fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join(PRELOAD)))
        .find(|path| path.exists())
        .context("the original's preload library is not installed")
}

/// Starts a program with our library preloaded, and a variable more.
fn start(words: &[&str], bench: &Bench, variable: Option<(&str, &str)>) -> Result<Running> {
    let preload = preload(&bench.ours)?;
    let preload = preload.to_str().context("path of the library")?;
    let mut env = vec![("LD_PRELOAD", preload)];
    env.extend(variable);
    program::start_with(words, &bench.ours, &env)
}

fn calls(program: &str, bench: &Bench, suite: &mut Suite) -> Result<()> {
    let program = bench.programs.join(program);
    let words = [program.to_str().context("path of the program")?, &ip()?];
    let mut running = start(&words, bench, None)?;
    let status = running.wait_for(LIMIT)?.context("never ended")?;
    suite.record_tap(&running.output());
    ensure!(status.success(), "{status}: {}", running.said());
    Ok(())
}

fn run(row: &Row, bench: &Bench, data: &[u8]) -> Result<()> {
    let packets = device::sent_packets()?;
    let ip = ip()?;
    let data_of_programs = workspace::root().join("xtask/programs/preload");
    let fork_safe = row.forks.map(|_| ("RDMAV_FORK_SAFE", "1"));
    let shell = |command: &str| {
        let command = command
            .replace("$IP", &ip)
            .replace("$DATA", &data_of_programs.to_string_lossy());
        start(&["sh", "-c", &format!("exec {command}")], bench, fork_safe)
    };
    let mut server = shell(row.server)?;
    server.wait_ready(row.forks.map_or(Ready::Listening, Ready::ListeningOnTcp))?;
    let mut client = shell(row.client)?;
    client
        .wait_success()
        .with_context(|| format!("server: {}", server.said()))?;
    if !row.goes_on {
        server.wait_success()?;
    }
    if row.copies {
        let copied = fs::read(TO)?;
        ensure!(copied == data, "the copy differs");
        fs::remove_file(TO)?;
    }
    let sent = device::sent_packets()?.saturating_sub(packets);
    ensure!(
        sent >= u64::from(LENGTH) / PACKET,
        "the RDMA device sent {sent} packets"
    );
    Ok(())
}
