//! `cargo xtask demo rping`: the distribution's own rping, its binary untouched,
//! makes a connection through our library, and the kernel's word is taken for it.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, device, ip, rping};
use crate::report::table;

/// Pings enough that the client can be looked at before it ends.
const PINGS: &str = "1000";

/// How much of what the client prints is shown.
const LAST_LINES: usize = 3;

/// The part beside the device.
pub fn inside(bench: &Bench) -> Result<ExitCode> {
    let ip = ip()?;
    let packets = device::sent_packets()?;
    let connections = device::connections_made()?;
    let words = |role| ["rping", role, "-v", "-a", ip.as_str(), "-C", PINGS];

    println!("$ {}", words("-s").join(" "));
    let mut server = program::start(&words("-s"), &bench.ours)?;
    server.wait_ready(Ready::Listening)?;
    println!("$ {}", words("-c").join(" "));
    let mut client = program::start(&words("-c"), &bench.ours)?;

    let mapped = [server.mapped()?, client.mapped()?];
    let results = [
        finish(&mut server, bench, &mapped[0]),
        finish(&mut client, bench, &mapped[1]),
    ];
    let connections = device::connections_made()? - connections;
    let packets = device::sent_packets()? - packets;

    let mut good = connections > 0 && packets > 0;
    let mut rows = vec![
        [
            "program",
            "librdmacm in /proc/PID/maps",
            "connections",
            "result",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for ((name, mapped), result) in ["rping server", "rping client"]
        .iter()
        .zip(mapped)
        .zip(results)
    {
        good &= result.is_ok();
        rows.push(vec![
            (*name).to_owned(),
            mapped.display().to_string(),
            connections.to_string(),
            result.map_or_else(|error| format!("FAILED: {error:#}"), |()| "ok".to_owned()),
        ]);
    }
    let output = client.output();
    let lines: Vec<_> = output.lines().collect();
    for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
        println!("{line}");
    }
    println!();
    println!("{}", table(&rows));
    println!("packets sent by the RDMA device meanwhile: {packets}");
    println!("demo {}", if good { "passed" } else { "FAILED" });
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Waits for the program and judges it.
fn finish(program: &mut Running, bench: &Bench, mapped: &Path) -> Result<()> {
    rping::verdict(program.wait_success())?;
    ensure!(bench.ours.is(mapped), "this is not our library");
    ensure!(program.output().contains("ping data"), "no ping data");
    Ok(())
}
