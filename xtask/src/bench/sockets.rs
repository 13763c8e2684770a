//! What is measured of sockets over RDMA. Every figure is a cost: of a
//! transfer, a connection, a byte, a socket.

use anyhow::Result;

use super::measure::{Tool, counted, datagrams, own, utility};
use crate::guest::Bench;
use crate::library::Library;

/// A line of the table.
pub struct Row {
    /// What is measured.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    how: How,
}

/// How to measure it.
enum How {
    /// rstream or riostream with these options on both sides.
    Utility(&'static str, &'static str),
    /// udpong with these options on both sides.
    Udpong(&'static str),
    /// The benchmark's own client, the value it prints and what to multiply
    /// that with.
    Own(&'static str, &'static str, f64),
    /// How many instructions the benchmark's client takes per message or
    /// connection: its mode and first number, then how many twice, as the
    /// difference counts.
    Cost(&'static str, [usize; 2]),
}

impl Row {
    const fn new(name: &'static str, unit: &'static str, how: How) -> Self {
        Self { name, unit, how }
    }

    /// How often to measure, if times are measured so many rounds: counts vary
    /// less, and take longer.
    pub fn rounds(&self, rounds: usize) -> usize {
        match self.how {
            How::Cost(..) => rounds.min(MOST_COUNTS),
            _ => rounds,
        }
    }

    /// Measures once.
    pub fn measure(&self, bench: &Bench, library: &Library) -> Result<f64> {
        match self.how {
            How::Utility(program, options) => utility(
                &format!("{program} -b $IP {options}"),
                &format!("{program} -s $IP {options}"),
                library,
            ),
            How::Udpong(options) => datagrams(
                &format!("udpong -b $IP {options}"),
                &format!("udpong -s $IP {options}"),
                library,
            ),
            How::Own(client, name, scale) => Ok(own(bench, library, client, name)? * scale),
            How::Cost(mode, counts) => difference(mode, counts, |client| {
                counted(bench, library, client, INSTRUCTIONS)
            }),
        }
    }

    /// System calls of the benchmark's client and all of the library's threads
    /// in it, for each message, connection or poll.
    const fn calls(name: &'static str, client: &'static str) -> Self {
        Self::new(name, "system calls", How::Own(client, "calls", 1.0))
    }

    const fn cost(name: &'static str, mode: &'static str, counts: [usize; 2]) -> Self {
        Self::new(name, INSTRUCTIONS.unit(), How::Cost(mode, counts))
    }
}

fn difference(
    mode: &str,
    [few, many]: [usize; 2],
    count: impl Fn(&str) -> Result<f64>,
) -> Result<f64> {
    let extra = count(&format!("{mode} {many}"))? - count(&format!("{mode} {few}"))?;
    Ok(extra / (many - few) as f64)
}

const INSTRUCTIONS: Tool = Tool::Instructions;
const MICRO: f64 = 1e6;
const MILLI: f64 = 1e3;
/// Seconds for each of 65536 bytes.
const NANO_PER_BYTE: f64 = 1e9 / 65536.0;

/// A line that is measured by rstream.
const fn rstream(name: &'static str, options: &'static str) -> Row {
    Row::new(name, "µs", How::Utility("rstream", options))
}

/// A line that is measured by riostream.
const fn riostream(name: &'static str, options: &'static str) -> Row {
    Row::new(name, "µs", How::Utility("riostream", options))
}

/// How often a count is repeated at most.
const MOST_COUNTS: usize = 3;

/// The table.
pub const ROWS: &[Row] = &[
    rstream("rstream, 64 B back and forth", "-S 64 -I 4000 -C 1"),
    rstream(
        "rstream blocking, 64 B back and forth",
        "-T b -S 64 -I 4000 -C 1",
    ),
    rstream(
        "rstream non-blocking, 64 B back and forth",
        "-T n -S 64 -I 4000 -C 1",
    ),
    rstream(
        "rstream polling, 64 B back and forth",
        "-T a -S 64 -I 4000 -C 1",
    ),
    rstream("rstream, 4 KB back and forth", "-S 4096 -I 200 -C 1"),
    rstream("rstream, 64 KB back and forth", "-S 65536 -I 30 -C 1"),
    rstream(
        "rstream blocking, 64 KB back and forth",
        "-T b -S 65536 -I 30 -C 1",
    ),
    rstream(
        "rstream non-blocking, 64 KB back and forth",
        "-T n -S 65536 -I 30 -C 1",
    ),
    rstream(
        "rstream polling, 64 KB back and forth",
        "-T a -S 65536 -I 30 -C 1",
    ),
    rstream("rstream, 1 MB back and forth", "-S 1048576 -I 4 -C 1"),
    rstream(
        "rstream blocking, 1 MB back and forth",
        "-T b -S 1048576 -I 4 -C 1",
    ),
    rstream(
        "rstream non-blocking, 1 MB back and forth",
        "-T n -S 1048576 -I 4 -C 1",
    ),
    rstream(
        "rstream polling, 1 MB back and forth",
        "-T a -S 1048576 -I 4 -C 1",
    ),
    rstream("rstream, 64 B one way", "-S 64 -I 1 -C 3000"),
    rstream("rstream blocking, 64 B one way", "-T b -S 64 -I 1 -C 3000"),
    rstream(
        "rstream non-blocking, 64 B one way",
        "-T n -S 64 -I 1 -C 3000",
    ),
    rstream("rstream polling, 64 B one way", "-T a -S 64 -I 1 -C 3000"),
    rstream("rstream, 64 KB one way", "-S 65536 -I 1 -C 50"),
    rstream(
        "rstream blocking, 64 KB one way",
        "-T b -S 65536 -I 1 -C 50",
    ),
    rstream(
        "rstream non-blocking, 64 KB one way",
        "-T n -S 65536 -I 1 -C 50",
    ),
    rstream("rstream polling, 64 KB one way", "-T a -S 65536 -I 1 -C 50"),
    rstream("rstream, 1 MB one way", "-S 1048576 -I 1 -C 8"),
    rstream(
        "rstream blocking, 1 MB one way",
        "-T b -S 1048576 -I 1 -C 8",
    ),
    rstream(
        "rstream non-blocking, 1 MB one way",
        "-T n -S 1048576 -I 1 -C 8",
    ),
    rstream("rstream polling, 1 MB one way", "-T a -S 1048576 -I 1 -C 8"),
    riostream("riostream, 64 B back and forth", "-S 64 -I 4000 -C 1"),
    riostream("riostream, 64 KB back and forth", "-S 65536 -I 30 -C 1"),
    riostream("riostream, 1 MB back and forth", "-S 1048576 -I 4 -C 1"),
    riostream("riostream, 64 KB one way", "-S 65536 -I 1 -C 50"),
    riostream(
        "riostream blocking, 64 KB one way",
        "-T b -S 65536 -I 1 -C 50",
    ),
    riostream("riostream, 1 MB one way", "-S 1048576 -I 1 -C 8"),
    Row::new("udpong, 64 B", "µs", How::Udpong("-S 64 -C 300")),
    Row::new(
        "udpong polling, 64 B",
        "µs",
        How::Udpong("-T a -S 64 -C 300"),
    ),
    Row::new(
        "connection, 1 thread",
        "ms",
        How::Own("connect 1 120", "each", MILLI),
    ),
    Row::new(
        "connection, 8 threads",
        "ms",
        How::Own("connect 8 256", "each", MILLI),
    ),
    Row::new("echo of 64 B", "µs", How::Own("echo 64 400", "each", MICRO)),
    Row::new(
        "send of 64 B",
        "µs",
        How::Own("stream 64 4000", "each", MICRO),
    ),
    Row::new(
        "send of 64 KB, per byte",
        "ns",
        How::Own("stream 65536 100", "each", NANO_PER_BYTE),
    ),
    Row::new(
        "rpoll of 257 sockets, 256 idle",
        "µs",
        How::Own("poll 256 40", "each", MICRO),
    ),
    Row::new(
        "memory of an idle socket, resident",
        "bytes",
        How::Own("memory 100", "resident", 1.0),
    ),
    Row::new(
        "memory of an idle socket, pinned",
        "bytes",
        How::Own("memory 100", "pinned", 1.0),
    ),
    Row::calls("sending 64 B", "stream 64 4000"),
    Row::calls("echo of 64 B", "echo 64 400"),
    Row::calls("sending 64 KB", "stream 65536 100"),
    Row::calls("echo of 64 KB", "echo 65536 60"),
    Row::calls("connection", "connect 1 20"),
    Row::calls("rpoll of 257 sockets, 256 idle", "poll 256 40"),
    Row::cost("sending 64 B", "stream 64", [200, 1200]),
    Row::cost("echo of 64 B", "echo 64", [50, 250]),
    Row::cost("connection", "connect 1", [2, 12]),
    Row::cost("sending 64 KB", "stream 65536", [5, 25]),
    Row::cost("echo of 64 KB", "echo 65536", [5, 25]),
];
