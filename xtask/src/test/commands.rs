//! Suite `commands`: what one reliable connection costs in kernel commands and
//! libibverbs calls, ours against the original in the same boot.
//!
//! A server and a client (`programs/connection.c`) make one and then several
//! connections; the difference divided by the extra connections is the cost of
//! one, free of initialisation and of the listener. strace counts the commands
//! written to the rdma_cm device, a preloaded shim (`programs/count.c`) the
//! libibverbs calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::compile;
use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, ip};
use crate::library::Library;
use crate::report::{Suite, table};

const FEW: usize = 1;
const MANY: usize = 4;
const PORT: &str = "7490";

/// The most that each side may use per connection (cm-spec §9.1).
const LIMITS: [(&str, &str, usize); 8] = [
    ("client", "commands", 16),
    ("server", "commands", 10),
    ("client", "modify_qp", 4),
    ("server", "modify_qp", 4),
    ("client", "alloc_pd", 0),
    ("server", "alloc_pd", 0),
    ("client", "dealloc_pd", 0),
    ("server", "dealloc_pd", 0),
];

/// Counts by name.
type Counts = BTreeMap<String, usize>;

/// Compiles the programs and returns their folder.
pub fn build() -> Result<PathBuf> {
    compile(&["count.c"], "count.so", &["-shared", "-fPIC", "-ldl"])?;
    compile(&["connection.c"], "connection", &["-lrdmacm", "-libverbs"])
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let original = per_connection(bench, &Library::Original)?;
    let ours = per_connection(bench, &bench.ours)?;
    let mut rows = vec![
        ["side", "what", "original", "ours", "limit"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (side, what, limit) in LIMITS {
        let count = |counts: &[Counts; 2]| {
            let counts = &counts[usize::from(side == "server")];
            counts.get(what).copied().unwrap_or(0)
        };
        let (original, ours) = (count(&original), count(&ours));
        rows.push(
            [
                side,
                what,
                &original.to_string(),
                &ours.to_string(),
                &limit.to_string(),
            ]
            .map(str::to_owned)
            .to_vec(),
        );
        suite.check(format!("{side}: at most {limit} {what} per connection"), {
            (|| {
                ensure!(ours <= limit, "{ours}");
                ensure!(ours <= original, "{ours}, the original has {original}");
                Ok(())
            })()
        });
    }
    println!("\n{}", table(&rows));
    Ok(())
}

/// What one connection costs the client and the server.
fn per_connection(bench: &Bench, library: &Library) -> Result<[Counts; 2]> {
    let few = measure(bench, library, FEW)?;
    let many = measure(bench, library, MANY)?;
    let mut costs = [Counts::new(), Counts::new()];
    for ((few, many), cost) in few.iter().zip(&many).zip(&mut costs) {
        for (name, many) in many {
            let extra = many - few.get(name).copied().unwrap_or(0).min(*many);
            // Rounded up: no command may hide in the division.
            cost.insert(name.clone(), extra.div_ceil(MANY - FEW));
        }
    }
    Ok(costs)
}

/// Makes `connections` and counts, for the client and the server.
fn measure(bench: &Bench, library: &Library, connections: usize) -> Result<[Counts; 2]> {
    let ip = ip()?;
    let mut server = Traced::start(bench, library, ["server", &ip], connections)?;
    server.running.wait_ready(Ready::Listening)?;
    let mut client = Traced::start(bench, library, ["client", &ip], connections)?;
    Ok([client.finish()?, server.finish()?])
}

/// The program under strace and the shim.
struct Traced {
    running: Running,
    trace: PathBuf,
    counts: PathBuf,
}

impl Traced {
    fn start(
        bench: &Bench,
        library: &Library,
        [role, ip]: [&str; 2],
        connections: usize,
    ) -> Result<Self> {
        let file = |kind: &str| {
            let name = format!("{role}-{}-{connections}.{kind}", library.name());
            std::env::temp_dir().join(name)
        };
        let (trace, counts) = (file("strace"), file("counts"));
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let words = [
            // With -D the program itself, not strace, is the process started.
            "strace -D -f -y -e trace=write,writev -s 4 -o".to_owned(),
            path(&trace),
            format!("-E LD_PRELOAD={}", path(&bench.programs.join("count.so"))),
            format!("-E COUNT_FILE={}", path(&counts)),
            path(&bench.programs.join("connection")),
            format!("{role} {ip} {PORT} {connections}"),
        ]
        .join(" ");
        let words: Vec<_> = words.split(' ').collect();
        Ok(Self {
            running: program::start(&words, library)?,
            trace,
            counts,
        })
    }

    /// Waits for its end and returns what was counted.
    fn finish(&mut self) -> Result<Counts> {
        self.running.wait_success()?;
        let trace = self.read_trace()?;
        let commands = trace
            .lines()
            .filter(|line| line.contains("write") && line.contains("/rdma_cm>,"))
            .count();
        let mut counts = Counts::from([("commands".to_owned(), commands)]);
        let calls = fs::read_to_string(&self.counts).context("the shim counted nothing")?;
        for line in calls.lines() {
            let (name, count) = line.split_once(' ').context("not a count")?;
            counts.insert(name.to_owned(), count.parse()?);
        }
        Ok(counts)
    }

    /// The trace, complete: strace may end a moment after the program.
    fn read_trace(&self) -> Result<String> {
        let deadline = Instant::now() + program::LIMIT;
        loop {
            let trace = fs::read_to_string(&self.trace)?;
            if trace.contains("+++ exited with 0 +++") {
                return Ok(trace);
            }
            ensure!(Instant::now() < deadline, "strace never finished its trace");
            thread::sleep(program::LOOK_AGAIN);
        }
    }
}
