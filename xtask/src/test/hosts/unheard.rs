//! Stream sockets whose client is not heard to be connected, nor to leave: the
//! link loses both messages of the connection manager. What the client sent has
//! arrived, and is not to be lost. The original's server waits for ever.

use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::remote::Remote;
use crate::guest::program::{self, Ready};
use crate::guest::{Bench, ip, variable};
use crate::library::Library;
use crate::process;
use crate::report::Suite;

/// Takes away the messages ReadyToUse and DisconnectRequest that arrive: UDP whose
/// management datagram, after the headers of IPv4, UDP, base transport and datagram
/// transport, has the attribute 0x14 or 0x15. Lost on the way in, as of a packet that
/// the link does not take the sender would know.
const BEGIN: &str = "modprobe -a sch_ingress cls_u32 act_gact \
    && tc qdisc add dev $1 clsact \
    && tc filter add dev $1 ingress protocol ip u32 \
        match u8 17 0xff at 9 match u16 0x0014 0xfffe at 64 action drop";
const END: &str = "tc qdisc del dev $1 clsact";

const PORT: u16 = 7640;

/// Runs the suite's cases about it, with clients on each library at once.
pub fn run(bench: &Bench, remote: &Remote, suite: &mut Suite) {
    let shell = |script: &str| {
        let script = script.replace("$1", &variable("RDMACM_TEST_NETDEV")?);
        process::output(Command::new("sh").args(["-c", &script])).map(drop)
    };
    let lossy = shell(BEGIN);
    let clients = [&bench.ours, &Library::Original];
    let servers = (PORT..).zip(clients).map(|(port, client)| match &lossy {
        Ok(()) => served(bench, remote, client, port),
        Err(error) => bail!("the link loses nothing: {error:#}"),
    });
    let servers: Vec<_> = servers.collect();
    for (client, server) in clients.into_iter().zip(servers) {
        let name = client.name();
        suite.check(
            format!("what a client sent whose connection was never heard of: {name}"),
            server.and_then(heard),
        );
    }
    suite.check("the link loses nothing again", shell(END));
}

/// Waits for the end of a server that has got what its client sent.
fn heard(mut server: program::Running) -> Result<()> {
    server.wait_success()?;
    let output = server.output();
    ensure!(output.contains("received a word"), "{output}");
    Ok(())
}

/// A server here that a client on the other machine has sent to, and left.
fn served(bench: &Bench, remote: &Remote, client: &Library, port: u16) -> Result<program::Running> {
    let program = bench.programs.join("unheard");
    let program = program.display();
    let here = ip()?;
    let words = format!("{program} serve {here} {port}");
    let words: Vec<_> = words.split(' ').collect();
    let mut server = program::start(&words, &bench.ours)?;
    server.wait_ready(Ready::Listening)?;
    remote
        .start(&format!("{program} send {here} {port}"), client)?
        .wait_success()?;
    Ok(server)
}
