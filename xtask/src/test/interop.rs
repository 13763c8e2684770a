//! Suite `interop`: unmodified programs on sockets over RDMA, in every pairing
//! of our library and the original that has ours on a side (see
//! [`super::pairing`]). Which original that is depends on the userland. After them
//! the conformance programs whose peer is another process, with that process on
//! the other library, in both roles; with one library on both sides they are in
//! [`super::conformance`].
//!
//! udpong runs on ours alone: the original cannot create the address handles of
//! RoCE, neither for what it sends nor for what it answers. Not here:
//! `rstream -T f`, which forks and needs the preload library ([`super::preload`]).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::conformance::{self, Original};
use super::pairing::{self, End, Row};
use crate::guest::Bench;
use crate::guest::program::{self, Ready};
use crate::library::Library;
use crate::process;
use crate::report::Suite;

macro_rules! both_sides {
    ($name:literal, $program:literal, $options:literal) => {
        Row::new(
            $name,
            concat!($program, " -b $IP ", $options),
            concat!($program, " -s $IP ", $options),
            "",
        )
    };
}

/// Its server never ends and listens to nobody.
macro_rules! udpong {
    ($name:literal, $server:literal, $client:literal) => {
        Row {
            ready: Ready::BoundToUdp(7174),
            end: End::Killed,
            original_client: false,
            original_server: false,
            ..Row::new(
                $name,
                concat!("udpong -b $IP ", $server),
                concat!("udpong -s $IP ", $client),
                "custom",
            )
        }
    };
}

const ROWS: &[Row] = &[
    both_sides!("rstream", "rstream", "-S 1024 -C 100"),
    both_sides!("rstream, blocking", "rstream", "-S 1024 -C 100 -T b"),
    both_sides!("rstream, non-blocking", "rstream", "-S 1024 -C 100 -T n"),
    // The original reports a hang-up while there is data, which rstream takes
    // for an error: with the original on both sides it fails now and then.
    Row {
        original_client: false,
        ..both_sides!("rstream, polling", "rstream", "-S 1024 -C 100 -T a")
    },
    both_sides!(
        "rstream, single bytes verified",
        "rstream",
        "-S 1 -C 2000 -T v"
    ),
    both_sides!("rstream, 64 B verified", "rstream", "-S 64 -C 3000 -T v"),
    both_sides!("rstream, 64 KB verified", "rstream", "-S 65536 -C 20 -T v"),
    both_sides!("rstream, 1 MB verified", "rstream", "-S 1048576 -C 3 -T v"),
    both_sides!(
        "rstream, back and forth",
        "rstream",
        "-S 200 -I 200 -C 1 -T v"
    ),
    both_sides!(
        "rstream, small buffers",
        "rstream",
        "-S 65536 -C 10 -B 8192 -T v"
    ),
    both_sides!(
        "rstream, nothing inline",
        "rstream",
        "-S 32 -C 500 -i 0 -T v"
    ),
    both_sides!("rstream, keep-alive", "rstream", "-S 1024 -C 100 -k 1"),
    Row::new(
        "rstream, IPv6",
        "rstream -f ipv6 -b $IP6 -S 1024 -C 100 -T v",
        "rstream -f ipv6 -s $IP6 -S 1024 -C 100 -T v",
        "",
    ),
    both_sides!("riostream, verified", "riostream", "-S 65536 -C 20 -T v"),
    both_sides!("riostream, 64 B verified", "riostream", "-S 64 -C 500 -T v"),
    both_sides!(
        "riostream, non-blocking",
        "riostream",
        "-S 1024 -C 100 -T n"
    ),
    udpong!("udpong", "", "-S 512 -C 50"),
    // Few, because udpong sends again what is not back after a millisecond, and
    // then answers each copy's echo with another copy: on a slow machine the
    // queues fill, and every further datagram waits for all of them.
    udpong!("udpong, larger than a packet", "-T e", "-S 1024 -C 5 -T e"),
    udpong!("udpong, non-blocking", "-T n", "-S 512 -C 50 -T n"),
    udpong!("udpong, polling", "-T a", "-S 512 -C 50 -T a"),
];

/// What rcopy copies.
const FROM: &str = "/tmp/rcopy-from";
const TO: &str = "/tmp/rcopy-to";

const RCOPY: Row = Row {
    end: End::Killed,
    ..Row::new(
        "rcopy",
        "rcopy",
        "rcopy /tmp/rcopy-from $IP:/tmp/rcopy-to",
        "",
    )
};

/// The names of the unmodified programs' cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().chain([&RCOPY]).map(|row| row.name)
}

/// The conformance programs whose peers may run on another library, and which of
/// their cases; all if empty.
const CONVERSATIONS: [(&str, &[&str]); 2] = [
    ("rsocket_between", &[]),
    (
        "rsocket_end",
        &["peer is killed", "peer that is stopped", "does not wait"],
    ),
];

/// The longest that one program may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Names the library of the peers of a conformance program.
const PEER_LIBRARY: &str = "RDMACM_TEST_PEER_LIBRARY";

/// Runs a conformance program on `own`, its peers on `other`. The original runs
/// only what it does well by itself.
fn converse(
    program: &Path,
    wanted: &[&str],
    [own, other]: [&Library; 2],
    suite: &mut Suite,
) -> Result<()> {
    let program = program.to_str().context("path of the program")?;
    let listed = process::output(Command::new(program).arg("--list"))?;
    let titles = listed.lines().filter_map(|case| {
        let (_, title) = case.split_once('/')?;
        let is_wanted = wanted.is_empty() || wanted.iter().any(|word| title.contains(word));
        let is_fit = *own != Library::Original || Original::of(title) == Original::Agrees;
        (is_wanted && is_fit).then_some(title)
    });
    let words: Vec<_> = std::iter::once(program).chain(titles).collect();
    let peer = match other {
        Library::Ours(folder) => folder.to_str().context("path of the library")?,
        Library::Original => other.name(),
    };
    let mut running = program::start_with(&words, own, &[(PEER_LIBRARY, peer)])?;
    running.wait_for(LIMIT)?.context("never ended")?;
    let cases = conformance::read(&running.output());
    ensure!(
        cases.len() + 1 == words.len(),
        "{} of {} results: {}",
        cases.len(),
        words.len() - 1,
        running.said()
    );
    for case in cases {
        let name = format!("{}: on {}, peer on {}", case.name, own.name(), other.name());
        suite.record(name, case.outcome);
    }
    Ok(())
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    for row in ROWS {
        pairing::check(row, bench, suite);
    }
    // Of no round size and without a period that a buffer may have.
    let data: Vec<u8> = (0..3_000_017u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(FROM, &data)?;
    pairing::check_and(&RCOPY, bench, suite, || {
        let copied = fs::read(TO)?;
        ensure!(copied == data, "the copy differs");
        fs::remove_file(Path::new(TO))?;
        Ok(())
    });
    let (ours, original) = (&bench.ours, &Library::Original);
    for (program, cases) in CONVERSATIONS {
        for libraries in [[ours, original], [original, ours]] {
            converse(&bench.programs.join(program), cases, libraries, suite)?;
        }
    }
    Ok(())
}
