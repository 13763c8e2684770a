//! What the kernel says about the RDMA device: packets sent, and which process
//! has which connection identifiers.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::variable;
use crate::process;

/// Packets that the device has sent so far.
pub fn sent_packets() -> Result<u64> {
    let device = variable("RDMACM_TEST_DEV")?;
    let counters = format!("/sys/class/infiniband/{device}/ports/1");
    ["hw_counters/sent_pkts", "counters/port_xmit_packets"]
        .iter()
        .find_map(|name| fs::read_to_string(format!("{counters}/{name}")).ok())
        .with_context(|| format!("{device} counts no packets"))?
        .trim()
        .parse()
        .context("not a packet count")
}

/// How many connection identifiers of process `pid` the kernel has in `state`
/// (`LISTEN`, `CONNECT`, …).
pub fn identifiers(pid: u32, state: &str) -> Result<usize> {
    let listing = process::output(Command::new("rdma").args(["resource", "show", "cm_id"]))?;
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
