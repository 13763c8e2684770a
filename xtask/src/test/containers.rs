//! Suite `containers`: what a program meets where nodes, permissions, sysfs or
//! devices are missing, as in a container that was set up incompletely.
//!
//! A probe (`programs/container.c`) makes the first calls of any program in
//! mounts and a network of its own. On our library the first call that fails
//! must be the expected one with the expected errno, at once, and a line of
//! the log must name the cause. The original runs too, for the table: its
//! results are shown and not judged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::compile;
use crate::guest::{Bench, ip, program};
use crate::library::Library;
use crate::process;
use crate::report::{Outcome, Suite, table};

/// Far longer than any prompt failure takes on a loaded machine, shorter than
/// the 5 s for which a missing node may be waited for.
const PROMPT: Duration = Duration::from_secs(4);

/// How long the kernel may take to be rid of a network namespace.
const NAMESPACE_GONE: Duration = Duration::from_secs(30);

/// How the probe prints that a call succeeded.
const SUCCESS: &str = "0";

/// A user without privileges.
const NOBODY: &str = "65534";

/// A /dev of the probe's own with nodes that everybody may open. It has no
/// folder for nodes by number, as is usual in containers.
const OWN_DEV: &str = "d=$(mktemp -d); chmod 755 $d; mkdir $d/infiniband; cp -a /dev/null $d; \
     cp -a /dev/infiniband/. $d/infiniband; chmod 666 $d/infiniband/*; mount --bind $d /dev; ";

/// Something that is missing.
struct Situation {
    name: &'static str,
    /// Shell commands that make it so, in mounts of the probe's own.
    setup: &'static str,
    /// Whether the probe gets a network namespace of its own.
    own_network: bool,
    /// Whether the probe runs without privileges.
    unprivileged: bool,
    /// The first call that fails, and how; `None` if all must succeed.
    fails: Option<(&'static str, &'static str)>,
    /// What a line of our log says about it.
    cause: &'static str,
}

impl Situation {
    const fn new(name: &'static str, setup: &'static str) -> Self {
        Self {
            name,
            setup,
            own_network: false,
            unprivileged: false,
            fails: None,
            cause: "",
        }
    }

    const fn fails(self, call: &'static str, errno: &'static str, cause: &'static str) -> Self {
        Self {
            fails: Some((call, errno)),
            cause,
            ..self
        }
    }
}

const SITUATIONS: &[Situation] = &[
    Situation::new("nothing is missing", ""),
    Situation {
        unprivileged: true,
        ..Situation::new("nothing is missing, without privileges", "")
    },
    Situation::new("no sysfs", "umount -l /sys; "),
    Situation::new("an empty sysfs", "mount -t tmpfs none /sys; "),
    Situation::new("no uverbs node", "rm /dev/infiniband/uverbs*; ").fails(
        "get_devices",
        "ENXIO",
        "find a uverbs node in /dev/infiniband for the RDMA devices that the kernel has",
    ),
    Situation::new("no node at all", "rm -r /dev/infiniband; ").fails(
        "get_devices",
        "ENXIO",
        "find a uverbs node in /dev/infiniband for the RDMA devices that the kernel has",
    ),
    Situation::new("no rdma_cm node", "rm /dev/infiniband/rdma_cm; ").fails(
        "create_event_channel",
        "ENOENT",
        "open the connection manager's device: No such file",
    ),
    Situation {
        unprivileged: true,
        ..Situation::new(
            "no permission for the rdma_cm node",
            "chmod 600 /dev/infiniband/rdma_cm; ",
        )
    }
    .fails(
        "create_event_channel",
        "EACCES",
        "open the connection manager's device: Permission denied",
    ),
    Situation {
        unprivileged: true,
        ..Situation::new(
            "no permission for the uverbs nodes",
            "chmod 600 /dev/infiniband/uverbs*; ",
        )
    }
    .fails(
        "bind_addr",
        "ENODEV",
        "open the uverbs node of an RDMA device: Permission denied",
    ),
    Situation {
        own_network: true,
        ..Situation::new(
            "a network namespace that shares the devices, not the address",
            "",
        )
    }
    .fails(
        "bind_addr",
        "EADDRNOTAVAIL",
        "bind to an address (BIND_IP): Cannot assign requested address",
    ),
];

/// Where namespaces have devices of their own.
const EXCLUSIVE: Situation = Situation {
    own_network: true,
    ..Situation::new("a network namespace without a device", "")
}
.fails(
    "get_devices",
    "ENODEV",
    "find an RDMA device in this network namespace, which sees its own devices only",
);

/// Compiles the probe and returns its folder.
pub fn build() -> Result<PathBuf> {
    compile(&["container.c"], "container", &["-lrdmacm"])
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let mut rows = vec![
        ["situation", "original", "ours", "our log"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for situation in SITUATIONS {
        rows.push(compare(bench, situation, suite)?);
    }
    if Path::new("/run/vm").exists() {
        separate_namespaces()?;
        rows.push(compare(bench, &EXCLUSIVE, suite)?);
    } else {
        let why = "would change the whole machine".to_owned();
        suite.record(EXCLUSIVE.name, Outcome::Skipped(why));
    }
    println!("\n{}", table(&rows));
    Ok(())
}

/// Gives namespaces devices of their own, which the kernel does only while
/// there is one namespace. The device goes with the namespace that holds its
/// network's other end; a new one takes its place.
fn separate_namespaces() -> Result<()> {
    let run = |line: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        process::output(command.args(words)).map(drop)
    };
    run("ip netns delete peer")?;
    let deadline = Instant::now() + NAMESPACE_GONE;
    while let Err(error) = run("rdma system set netns exclusive") {
        ensure!(Instant::now() < deadline, "{error:#}");
        thread::sleep(program::LOOK_AGAIN);
    }
    run("ip link add dummy0 type dummy")?;
    run("ip link set dummy0 up")?;
    run("rdma link add rxe9 type rxe netdev dummy0")
}

/// Runs the probe on both libraries and returns a row of the table.
fn compare(bench: &Bench, situation: &Situation, suite: &mut Suite) -> Result<Vec<String>> {
    let original = probe(bench, situation, &Library::Original)?;
    let ours = probe(bench, situation, &bench.ours)?;
    suite.check(situation.name, ours.judge(situation));
    let log = ours.log.iter().find(|line| line.contains(situation.cause));
    let message = log.filter(|_| situation.fails.is_some()).map(|line| {
        let said = line
            .split_once("] ")
            .map_or(line.as_str(), |(_, said)| said);
        said.to_owned()
    });
    Ok(vec![
        situation.name.to_owned(),
        original.to_string(),
        ours.to_string(),
        message.unwrap_or_default(),
    ])
}

/// How the calls of the probe ended, and what the library logged.
struct Seen {
    calls: Vec<Call>,
    log: Vec<String>,
}

struct Call {
    name: String,
    /// Its name; "0" for success.
    errno: String,
    time: Duration,
}

fn probe(bench: &Bench, situation: &Situation, library: &Library) -> Result<Seen> {
    let ip = ip()?;
    let script = format!(
        "set -e; {OWN_DEV}{}exec {} {ip} {}",
        situation.setup,
        process::quote(&bench.programs.join("container").to_string_lossy()),
        if situation.unprivileged { NOBODY } else { "" },
    );
    let mut words = vec!["unshare", "--mount"];
    if situation.own_network {
        words.push("--net");
    }
    words.extend(["sh", "-c", &script]);
    let mut running = program::start_with(&words, library, &[("RDMACM_LOG", "info")])?;
    running.wait_success()?;
    Seen::read(&running.output())
}

impl Seen {
    fn read(output: &str) -> Result<Self> {
        let mut seen = Self {
            calls: Vec::new(),
            log: Vec::new(),
        };
        for line in output.lines() {
            let words: Vec<_> = line.split(' ').collect();
            if let ["call", name, errno, milliseconds] = words[..] {
                seen.calls.push(Call {
                    name: name.to_owned(),
                    errno: errno.to_owned(),
                    time: Duration::from_millis(milliseconds.parse()?),
                });
            } else {
                seen.log.push(line.to_owned());
            }
        }
        ensure!(!seen.calls.is_empty(), "the probe made no call: {output}");
        Ok(seen)
    }

    fn first_failure(&self) -> Option<&Call> {
        self.calls.iter().find(|call| call.errno != SUCCESS)
    }

    fn judge(&self, situation: &Situation) -> Result<()> {
        let failed = self.first_failure();
        let failed = failed.map(|call| (call.name.as_str(), call.errno.as_str()));
        ensure!(
            failed == situation.fails,
            "{self}; log: {}",
            self.log.join(" | ")
        );
        if situation.fails.is_some() {
            self.log
                .iter()
                .find(|line| line.contains(situation.cause))
                .with_context(|| format!("no cause in the log: {}", self.log.join(" | ")))?;
        }
        let slow = self.calls.iter().find(|call| call.time > PROMPT);
        ensure!(slow.is_none(), "not at once: {self}");
        Ok(())
    }
}

impl std::fmt::Display for Seen {
    /// The first failure, with the time it took if that is worth a word.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(call) = self.first_failure() else {
            return f.write_str("works");
        };
        write!(f, "{}: {}", call.name, call.errno)?;
        if call.time > PROMPT {
            write!(f, " after {} s", call.time.as_secs())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_words_and_every_failure_a_place_of_its_own() {
        let all = || SITUATIONS.iter().chain([&EXCLUSIVE]);
        for one in all().filter(|one| one.fails.is_some()) {
            let same = all().filter(|other| other.fails == one.fails && other.cause != one.cause);
            assert_eq!(same.count(), 0, "{}", one.name);
            let same = all().filter(|other| other.cause == one.cause && other.fails != one.fails);
            assert_eq!(same.count(), 0, "{}", one.name);
        }
    }

    #[test]
    fn what_the_probe_prints_is_understood() {
        let seen = Seen::read("call get_devices 0 12\nlog\ncall bind_addr ENODEV 5100\n");
        assert_eq!(seen.unwrap().to_string(), "bind_addr: ENODEV after 5 s");
        assert!(Seen::read("Segmentation fault\n").is_err());
    }
}
