//! What the kernel says about the RDMA device: packets sent, and which process
//! has which connection identifiers.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::variable;
use crate::process;

/// Packets that the device has sent so far.
pub fn sent_packets() -> Result<u64> {
    counter("hw_counters/sent_pkts").or_else(|_| counter("counters/port_xmit_packets"))
}

/// Connections that were established from this device so far: the
/// ready-to-use messages of the InfiniBand connection manager.
pub fn connections_made() -> Result<u64> {
    counter("cm_tx_msgs/rtu")
}

fn counter(name: &str) -> Result<u64> {
    let device = variable("RDMACM_TEST_DEV")?;
    let file = format!("/sys/class/infiniband/{device}/ports/1/{name}");
    fs::read_to_string(&file)
        .with_context(|| format!("cannot read {file}"))?
        .trim()
        .parse()
        .with_context(|| format!("{file} is no number"))
}

/// How many connection identifiers of process `pid` the kernel has in `state`
/// (`LISTEN`, `CONNECT`, …).
pub fn identifiers(pid: u32, state: &str) -> Result<usize> {
    resources("cm_id", pid, state)
}

/// How many queue pairs of process `pid` can send.
pub fn connections(pid: u32) -> Result<usize> {
    resources("qp", pid, "RTS")
}

fn resources(kind: &str, pid: u32, state: &str) -> Result<usize> {
    let listing = process::output(Command::new("rdma").args(["resource", "show", kind]))?;
    let pid = pid.to_string();
    let has = |line: &str, key: &str, value: &str| {
        line.split_whitespace()
            .skip_while(|word| *word != key)
            .nth(1)
            .is_some_and(|word| word == value)
    };
    Ok(listing
        .lines()
        .filter(|line| has(line, "state", state) && has(line, "pid", &pid))
        .count())
}
