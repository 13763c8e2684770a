//! What is measured of sockets over RDMA. Every figure is a cost: of a
//! transfer, a connection, a byte, a socket.

use anyhow::Result;

use super::measure::{Tool, counted, own, utility};
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
    /// rstream, riostream or udpong with these options on both sides.
    Utility(&'static str, &'static str),
    /// The benchmark's own client, the value it prints and what to multiply
    /// that with.
    Own(&'static str, &'static str, f64),
    /// What the benchmark's client costs per message or connection: its mode
    /// and first number, then how many twice, as the difference counts.
    Cost(Tool, &'static str, [usize; 2]),
}

impl Row {
    const fn new(name: &'static str, unit: &'static str, how: How) -> Self {
        Self { name, unit, how }
    }

    /// Measures once.
    pub fn measure(&self, bench: &Bench, library: &Library) -> Result<f64> {
        match self.how {
            How::Utility(program, options) => utility(
                &format!("{program} -b $IP {options}"),
                &format!("{program} -s $IP {options}"),
                library,
            ),
            How::Own(client, name, scale) => Ok(own(bench, library, client, name)? * scale),
            How::Cost(tool, mode, counts) => {
                difference(mode, counts, |client| counted(bench, library, client, tool))
            }
        }
    }

    const fn cost(name: &'static str, tool: Tool, mode: &'static str, counts: [usize; 2]) -> Self {
        Self::new(name, tool.unit(), How::Cost(tool, mode, counts))
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

const MICRO: f64 = 1e6;
const MILLI: f64 = 1e3;
/// Seconds for each of 65536 bytes.
const NANO_PER_BYTE: f64 = 1e9 / 65536.0;

/// The table.
pub const ROWS: &[Row] = &[
    Row::new(
        "rstream, 64 B back and forth",
        "µs",
        How::Utility("rstream", "-S 64 -I 400 -C 1"),
    ),
    Row::new(
        "rstream, 4 KB back and forth",
        "µs",
        How::Utility("rstream", "-S 4096 -I 200 -C 1"),
    ),
    Row::new(
        "rstream, 64 KB back and forth",
        "µs",
        How::Utility("rstream", "-S 65536 -I 30 -C 1"),
    ),
    Row::new(
        "rstream, 1 MB back and forth",
        "µs",
        How::Utility("rstream", "-S 1048576 -I 4 -C 1"),
    ),
    Row::new(
        "rstream blocking, 64 B back and forth",
        "µs",
        How::Utility("rstream", "-T b -S 64 -I 400 -C 1"),
    ),
    Row::new(
        "rstream non-blocking, 64 B back and forth",
        "µs",
        How::Utility("rstream", "-T n -S 64 -I 400 -C 1"),
    ),
    Row::new(
        "rstream polling, 64 B back and forth",
        "µs",
        How::Utility("rstream", "-T a -S 64 -I 400 -C 1"),
    ),
    Row::new(
        "rstream, 64 B one way",
        "µs",
        How::Utility("rstream", "-S 64 -I 1 -C 3000"),
    ),
    Row::new(
        "rstream blocking, 64 B one way",
        "µs",
        How::Utility("rstream", "-T b -S 64 -I 1 -C 3000"),
    ),
    Row::new(
        "rstream non-blocking, 64 B one way",
        "µs",
        How::Utility("rstream", "-T n -S 64 -I 1 -C 3000"),
    ),
    Row::new(
        "rstream polling, 64 B one way",
        "µs",
        How::Utility("rstream", "-T a -S 64 -I 1 -C 3000"),
    ),
    Row::new(
        "rstream, 64 KB one way",
        "µs",
        How::Utility("rstream", "-S 65536 -I 1 -C 50"),
    ),
    Row::new(
        "rstream blocking, 64 KB one way",
        "µs",
        How::Utility("rstream", "-T b -S 65536 -I 1 -C 50"),
    ),
    Row::new(
        "rstream, 1 MB one way",
        "µs",
        How::Utility("rstream", "-S 1048576 -I 1 -C 8"),
    ),
    Row::new(
        "riostream, 64 B back and forth",
        "µs",
        How::Utility("riostream", "-S 64 -I 400 -C 1"),
    ),
    Row::new(
        "riostream, 64 KB one way",
        "µs",
        How::Utility("riostream", "-S 65536 -I 1 -C 50"),
    ),
    Row::new("udpong, 64 B", "µs", How::Utility("udpong", "-S 64 -C 300")),
    Row::new(
        "connection, 1 thread",
        "ms",
        How::Own("connect 1 60", "each", MILLI),
    ),
    Row::new(
        "connection, 8 threads",
        "ms",
        How::Own("connect 8 64", "each", MILLI),
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
        "memory of a socket",
        "bytes",
        How::Own("memory 100", "each", 1.0),
    ),
    Row::cost("sending 64 B", Tool::Calls, "stream 64", [200, 1200]),
    Row::cost("echo of 64 B", Tool::Calls, "echo 64", [50, 250]),
    Row::cost("connection", Tool::Calls, "connect 1", [2, 12]),
    Row::cost("sending 64 B", Tool::Instructions, "stream 64", [200, 1200]),
    Row::cost("echo of 64 B", Tool::Instructions, "echo 64", [50, 250]),
    Row::cost("sending 64 KB", Tool::Instructions, "stream 65536", [5, 25]),
];
