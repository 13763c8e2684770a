//! srp-target: serves files and block devices to SRP initiators such as Linux's
//! `ib_srp`, over RDMA.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | `options` | the command line |
//! | `disks` | the files and devices that are served |
//! | `target` | who may log in |
//! | `sessions` | how many sessions, and what each has not been told yet |
//! | `executor` | executing the commands of one channel |
//! | `stats` | counting commands |
//! | `output` | what the program says |
//! | `signals` | what the process is told from outside |
//! | `machine` | what tells this machine from others |
//! | `cost` | tests of what a command costs |

#[cfg(test)]
mod cost;
mod disks;
mod executor;
mod machine;
mod options;
mod output;
mod sessions;
mod signals;
mod stats;
mod target;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use srpt::processors::Processors;
use srpt::scsi::attention::News;
use srpt::scsi::inquiry::MAX_TRANSFER;
use srpt::scsi::unit::Identity;
use srpt::server::{QpPolicy, Server, Settings};
use srpt::wire::PortId;

use disks::Disks;
use options::{Options, Policy};
use output::{complain, say};
use sessions::Sessions;
use signals::{Signal, Signals};
use stats::{Snapshot, Stats};
use target::{DiskTarget, Shared};

fn main() -> ExitCode {
    let options = Options::parse();
    rdmacm::diag::initialise();
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("srp-target: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Serves until told to stop.
fn serve(options: &Options) -> Result<()> {
    // Before any thread exists: all of them inherit that these are blocked.
    let signals = Signals::block().context("cannot wait for signals")?;
    let disks = Disks::open(&options.luns, options.read_only)?;
    let shared = Arc::new(Shared {
        sessions: Sessions::new(options.max_sessions as usize, disks.numbers().len()),
        disks,
        stats: options.stats.then(Stats::default),
    });
    let target = Arc::new(DiskTarget {
        shared: Arc::clone(&shared),
        allowed: options.allow.clone(),
    });
    let settings = settings(options)?;
    let port = settings.port_id;
    let server = Server::start(settings, target)
        .with_context(|| format!("cannot listen on {}", options.portal))?;
    announce(options, port, &shared.disks);
    wait(&signals, &shared)?;
    say("stopping");
    let limit = Duration::from_secs(10);
    ensure!(server.stop(limit), "channels did not end within {limit:?}");
    Ok(())
}

/// What the command line asks for, if one channel at least can be served.
fn settings(options: &Options) -> Result<Settings> {
    let usual = Settings::new(options.portal, port_id(options));
    let settings = Settings {
        memory: options
            .memory
            .map_or(usual.memory, |mebibytes| mebibytes.saturating_mul(1 << 20)),
        credits: options.credits,
        max_transfer: MAX_TRANSFER as usize,
        immediate: if options.no_immediate_data { 0 } else { 8192 },
        policy: match options.qp_policy {
            Policy::Current => QpPolicy::Current,
            Policy::Manual => QpPolicy::Manual,
        },
        processors: if options.any_processor {
            Processors::any()
        } else {
            Processors::allowed()
        },
        look: Duration::from_micros(options.look.into()),
        ..usual
    };
    let (memory, least) = (settings.memory >> 20, settings.channel_memory());
    ensure!(
        least <= settings.memory,
        "a channel needs {} MiB of memory, and may take {memory} (--memory)",
        least.div_ceil(1 << 20)
    );
    Ok(settings)
}

/// The target port: as said, or derived from machine and portal.
fn port_id(options: &Options) -> PortId {
    let derived = || {
        // The number of an interface may be another one next time.
        let portal = SocketAddr::new(options.portal.ip(), options.portal.port());
        let unique = [machine::identity(), portal.to_string().into_bytes()];
        let [.., a, b, c, d, e, f, g, h] = Identity::derived(&unique.concat()).naa;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    };
    let guid = options.ioc_guid.unwrap_or_else(derived);
    let extension = options.id_ext.unwrap_or(guid);
    let mut id = [0; 16];
    let bytes = extension
        .to_be_bytes()
        .into_iter()
        .chain(guid.to_be_bytes());
    for (to, from) in id.iter_mut().zip(bytes) {
        *to = from;
    }
    PortId(id)
}

/// Says what is served, and what an initiator needs to find it.
fn announce(options: &Options, port: PortId, disks: &Disks) {
    for disk in disks.iter() {
        say(&format!(
            "lun {}: {}, {} blocks of {} bytes{}, serial {}",
            disk.number,
            disk.backing.path.display(),
            disk.unit.blocks(),
            disk.unit.block_size(),
            if disk.unit.read_only {
                ", read-only"
            } else {
                ""
            },
            disk.unit.identity.serial,
        ));
    }
    let id = u128::from_be_bytes(port.0);
    say(&format!(
        "listening: id_ext={:016x},ioc_guid={:016x},dest={}",
        (id >> 64) as u64,
        id as u64,
        options.portal
    ));
}

/// Returns when told to stop; prints statistics meanwhile, if they are kept.
fn wait(signals: &Signals, shared: &Shared) -> Result<()> {
    const INTERVAL: Duration = Duration::from_secs(1);
    let mut before = Snapshot::default();
    let mut since = Instant::now();
    loop {
        let limit = shared
            .stats
            .as_ref()
            .map(|_| INTERVAL.saturating_sub(since.elapsed()));
        match signals.wait(limit).context("cannot wait for signals")? {
            Some(Signal::Stop) => return Ok(()),
            Some(Signal::Refresh) => shared
                .disks
                .refresh(|disk| shared.sessions.announce(disk, News::Resized)),
            None => {
                if let Some(stats) = &shared.stats {
                    let seconds = since.elapsed().as_secs_f64();
                    since = Instant::now();
                    say(&stats.line(&mut before, seconds, shared.sessions.count()));
                }
            }
        }
    }
}
