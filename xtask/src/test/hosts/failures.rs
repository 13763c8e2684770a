//! The link or the other machine fails. Ours and the original are in the same
//! outage, each with an end of its own on this machine; the servers on the
//! other one run on ours.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::end::{End, PEER_IP};
use super::remote::Remote;
use crate::guest::{Bench, variable};
use crate::library::Library;
use crate::process;
use crate::report::Suite;

const ENETUNREACH: i32 = 101;
const ETIMEDOUT: i32 = 110;
/// `IBV_WC_RETRY_EXC_ERR`.
const RETRIES_EXCEEDED: i32 = 12;

/// A retry count with which soft-RoCE never gives up.
const FOR_EVER: u8 = 7;
/// One with which it does, after a few seconds.
const FEW: u8 = 3;

/// What ends without packets, on a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(10);
/// What a time limit of a second ends, on a loaded machine.
const SOON: Duration = Duration::from_secs(15);
/// The retries of a queue pair, with the timeouts that the kernel sets.
const RETRIES: Duration = Duration::from_secs(90);
/// The retries of the connection manager: 15 times four to five seconds.
const MANAGER: Duration = Duration::from_secs(150);
/// How long a short outage lasts: some retries, not all of them.
const OUTAGE: Duration = Duration::from_secs(3);
/// An outage that a request is lost in. The kernel repeats it after more than
/// four seconds; by then the port must have its addresses again, which it gets
/// from a work queue, else the kernel rejects the request.
const LOST_REQUEST: Duration = Duration::from_secs(1);
/// How long the other machine may take to be gone.
const GONE: Duration = Duration::from_secs(30);

/// Tries everything; the other machine is gone afterwards.
pub fn run(bench: &Bench, remote: &Remote, suite: &mut Suite) -> Result<()> {
    let trial = Trial {
        bench,
        remote,
        interface: variable("RDMACM_TEST_NETDEV")?,
    };
    trial.own_link(suite)?;
    trial.resolving(suite)?;
    trial.connecting(suite)?;
    trial.connected(suite)?;
    trial.crash(suite)
}

struct Trial<'a> {
    bench: &'a Bench,
    remote: &'a Remote,
    interface: String,
}

/// One end on each library, in the same step.
struct Both<'a>(Vec<(&'static str, Result<End<'a>>)>);

impl<'a> Both<'a> {
    /// Starts a step of each, or waits for the end of one; an end that went
    /// astray takes no further step.
    fn each(&mut self, act: impl Fn(&mut End<'a>) -> Result<()>) {
        for (_, end) in &mut self.0 {
            if let Ok(good) = end
                && let Err(error) = act(good)
            {
                let said = good.output().unwrap_or_default().replace('\n', " | ");
                *end = Err(error.context(format!("it said: {said}")));
            }
        }
    }

    fn tell(&mut self, command: &str) {
        self.each(|end| end.tell(command));
    }

    /// Demands how the steps end that were told.
    fn demand(&mut self, outcome: &str, status: i32, within: Duration) {
        self.each(|end| end.answer()?.demand(outcome, status, within));
    }

    fn step(&mut self, command: &str, outcome: &str, status: i32, within: Duration) {
        self.tell(command);
        self.each(|end| {
            let answer = end.answer()?;
            let demanded = answer.demand(outcome, status, within);
            demanded.with_context(|| command.to_owned())
        });
    }

    fn record(self, what: &str, suite: &mut Suite) {
        for (library, end) in self.0 {
            suite.check(format!("{what}: {library}"), end.map(drop));
        }
    }

    /// As [`Both::record`]; what the servers said goes with a failure.
    fn record_with(self, servers: &[End<'_>], what: &str, suite: &mut Suite) {
        for ((library, end), server) in self.0.into_iter().zip(servers) {
            let said = || server.output().unwrap_or_default().replace('\n', " | ");
            let result = end.with_context(|| format!("the server said: {}", said()));
            suite.check(format!("{what}: {library}"), result.map(drop));
        }
    }
}

impl<'a> Trial<'a> {
    fn libraries(&self) -> [&'a Library; 2] {
        [&self.bench.ours, &Library::Original]
    }

    /// An end for each library, at these ports.
    fn both(&self, ports: [u16; 2]) -> Both<'a> {
        let ends = self.libraries().into_iter().zip(ports);
        Both(
            ends.map(|(library, port)| (library.name(), End::here(self.bench, library, port)))
                .collect(),
        )
    }

    /// Servers for the ends at these ports.
    fn servers(&self, ports: [u16; 2], command: &str) -> Result<Vec<End<'a>>> {
        ports
            .into_iter()
            .map(|port| End::server(self.remote, self.bench, &self.bench.ours, port, command))
            .collect()
    }

    fn own(&self, state: &str) -> Result<()> {
        let arguments = ["link", "set", &self.interface, state];
        process::output(Command::new("ip").args(arguments)).map(drop)
    }

    fn peer(&self, state: &str) -> Result<()> {
        let line = format!("ip link set {} {state}", self.interface);
        self.remote.shell(&line)
    }

    /// Forgets what the neighbours' addresses are.
    fn forget_neighbours(&self) -> Result<()> {
        let arguments = ["neigh", "flush", "dev", &self.interface];
        process::output(Command::new("ip").args(arguments)).map(drop)
    }

    fn own_link(&self, suite: &mut Suite) -> Result<()> {
        let resolve = format!("resolve {} 1000", variable(PEER_IP)?);
        let mut ends = self.both([7601, 7602]);
        self.own("down")?;
        ends.step(&resolve, "errno", ENETUNREACH, AT_ONCE);
        self.own("up")?;
        // The address has no RDMA device before the port is back.
        ends.each(|end| {
            let deadline = Instant::now() + GONE;
            while end.step(&resolve)?.end != "ADDR_RESOLVED" {
                ensure!(Instant::now() < deadline, "it never resolved again");
            }
            Ok(())
        });
        ends.record("own link down: no way, and again once it is up", suite);
        Ok(())
    }

    fn resolving(&self, suite: &mut Suite) -> Result<()> {
        let resolve = format!("resolve {} 1000", variable(PEER_IP)?);
        let mut ends = self.both([7603, 7604]);
        self.peer("down")?;
        self.forget_neighbours()?;
        ends.step(&resolve, "ADDR_ERROR", -ETIMEDOUT, SOON);
        self.peer("up")?;
        ends.each(End::resolve);
        ends.record("link down while resolving: ADDR_ERROR, and again", suite);
        Ok(())
    }

    fn connecting(&self, suite: &mut Suite) -> Result<()> {
        let ports = [7605, 7606];
        let servers = self.servers(ports, "listen")?;
        let mut ends = self.both(ports);
        ends.each(End::resolve);
        self.peer("down")?;
        ends.tell("connect");
        thread::sleep(LOST_REQUEST);
        self.peer("up")?;
        ends.demand("ESTABLISHED", 0, MANAGER);
        ends.step("send", "completion", 0, RETRIES);
        let what = "link down while connecting: ESTABLISHED afterwards";
        ends.record_with(&servers, what, suite);
        Ok(())
    }

    fn connected(&self, suite: &mut Suite) -> Result<()> {
        let ports = [7607, 7608];
        let servers = self.servers(ports, "listen")?;
        let mut ends = self.both(ports);
        ends.each(|end| end.connect(FOR_EVER));
        self.peer("down")?;
        ends.tell("send");
        thread::sleep(OUTAGE);
        self.peer("up")?;
        ends.demand("completion", 0, RETRIES);
        ends.step("disconnect", "DISCONNECTED", 0, RETRIES);
        let what = "link down while connected: data arrive afterwards";
        ends.record_with(&servers, what, suite);
        Ok(())
    }

    fn crash(&self, suite: &mut Suite) -> Result<()> {
        let (silent, serving) = ([7609, 7610], [7611, 7612]);
        let _silent = self.servers(silent, "ignore")?;
        let _serving = self.servers(serving, "listen")?;
        let mut connecting = self.both(silent);
        let mut connected = self.both(serving);
        let mut resolving = self.both([7613, 7614]);
        connecting.each(End::resolve);
        connected.each(|end| end.connect(FEW));
        connecting.tell("connect");
        self.remote.crash()?;
        wait_gone()?;
        self.forget_neighbours()?;

        connected.tell("send");
        let resolve = format!("resolve {} 1000", variable(PEER_IP)?);
        resolving.step(&resolve, "ADDR_ERROR", -ETIMEDOUT, SOON);
        resolving.record("machine killed, resolving: ADDR_ERROR", suite);
        connected.demand("completion", RETRIES_EXCEEDED, RETRIES);
        connected.step("disconnect", "UNREACHABLE", -ETIMEDOUT, MANAGER);
        connected.step("destroy", "errno", 0, AT_ONCE);
        connected.record(
            "machine killed while connected: RETRY_EXC_ERR, then UNREACHABLE",
            suite,
        );
        connecting.demand("UNREACHABLE", -ETIMEDOUT, MANAGER);
        connecting.step("destroy", "errno", 0, AT_ONCE);
        connecting.record("machine killed while connecting: UNREACHABLE", suite);
        Ok(())
    }
}

/// Waits until the other machine refuses connections no more, as a living one
/// does at a port where nobody listens.
fn wait_gone() -> Result<()> {
    let nobody: SocketAddr = format!("{}:1", variable(PEER_IP)?).parse()?;
    let deadline = Instant::now() + GONE;
    while let Err(error) = TcpStream::connect_timeout(&nobody, Duration::from_secs(1))
        && error.kind() == ErrorKind::ConnectionRefused
    {
        ensure!(
            Instant::now() < deadline,
            "the other machine is still there"
        );
    }
    Ok(())
}
