//! Logging in and out: channels, sessions, refusals, and the program's own
//! start and end.

use anyhow::{Context, Result, ensure};

use super::{Case, Lab, case, close, thorough};
use crate::guest::srp::initiator::{self, Address};
use crate::guest::srp::kernel_log::Mark;
use crate::guest::srp::sh;
use crate::guest::srp::target::Target;
use crate::guest::variable;

pub const CASES: &[Case] = &[
    case("login with one channel", one_channel),
    case("login with a channel per processor", several_channels),
    case("login over IPv6", over_ipv6),
    case("login of a second initiator port", second_session),
    case("login without immediate data", without_immediate_data),
    case("login with two credits", two_credits),
    case("login with the rights of the manual page", manual_rights),
    case("refused: unknown target port", unknown_port),
    case("refused: address not allowed", not_allowed),
    case("refused: too many sessions", too_many),
    case("refused: nobody listens", nobody_listens),
    case("refused: logged in already", twice),
    case(
        "srp-target has a help text, and says why it cannot start",
        start_errors,
    ),
    case(
        "srp-target ends on SIGTERM with a session",
        end_with_session,
    ),
    thorough("many logins and logouts leave nothing behind", many_logins),
];

fn one_channel(lab: &Lab) -> Result<()> {
    let (mut target, session) = lab.session("ch_count=1", "")?;
    ensure!(session.host_value("ch_count")? == "1");
    let disk = session.disk()?;
    ensure!(disk.bytes()? == 64 << 20);
    target.wait_output("login ", 1)?;
    session.logout()?;
    target.wait_output("logout ", 1)?;
    let said = target.stop()?;
    ensure!(said.matches("login ").count() == 1, "{said}");
    Ok(())
}

fn several_channels(lab: &Lab) -> Result<()> {
    let (mut target, session) = lab.session("", "")?;
    let channels = session.channels()?;
    ensure!(channels > 1, "the initiator made one channel only");
    target.wait_output("login ", channels)?;
    session.disk()?.fio("--rw=randread --bs=4k --size=1m")?;
    session.logout()?;
    target.wait_output("logout ", channels)?;
    target.stop()?;
    Ok(())
}

fn over_ipv6(lab: &Lab) -> Result<()> {
    let image = lab.image("disk", 64)?;
    let mut program = lab.program.clone();
    program.ip = format!("[{}]", variable("RDMACM_TEST_IP6")?);
    let target = program.start(&format!("--lun {}", image.display()))?;
    initiator::load("")?;
    let session = initiator::login(target.address(), "")?;
    session.disk()?.fio("--rw=randread --bs=4k --size=1m")?;
    close(target, session)?;
    Ok(())
}

fn second_session(lab: &Lab) -> Result<()> {
    let images = [lab.image("a", 64)?, lab.image("b", 64)?];
    let luns: Vec<_> = images
        .iter()
        .map(|image| format!("--lun {}", image.display()))
        .collect();
    let target = lab.program.start(&luns.join(" "))?;
    initiator::load("")?;
    let first = initiator::login(target.address(), "")?;
    let second = initiator::login(target.address(), "initiator_ext=0000000000000007")?;
    let (first_disks, second_disks) = (first.disks(2)?, second.disks(2)?);
    std::thread::scope(|scope| {
        let jobs: Vec<_> = [&first_disks[0], &second_disks[1]]
            .into_iter()
            .map(|disk| scope.spawn(|| disk.fio(VERIFY)))
            .collect();
        jobs.into_iter()
            .try_for_each(|job| job.join().map_err(|_| anyhow::anyhow!("panic"))?.map(drop))
    })?;
    first.logout()?;
    second_disks[0].fio("--rw=randread --bs=4k --size=1m")?;
    close(target, second)?;
    Ok(())
}

/// Writes and reads back.
pub const VERIFY: &str = "--rw=randwrite --bs=4k --size=4m --iodepth=16 --verify=crc32c";

fn without_immediate_data(lab: &Lab) -> Result<()> {
    for (parameters, options) in [("use_imm_data=N", ""), ("", "--no-immediate-data")] {
        let (target, session) = lab.session(parameters, options)?;
        session.disk()?.fio(VERIFY)?;
        close(target, session)?;
    }
    Ok(())
}

fn two_credits(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("ch_count=1", "--credits 2")?;
    session.disk()?.fio(VERIFY)?;
    close(target, session)?;
    Ok(())
}

fn manual_rights(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "--qp-policy manual")?;
    session.disk()?.fio(VERIFY)?;
    close(target, session)?;
    Ok(())
}

/// Demands that the login fails, with this error number and kernel message.
pub fn refused(address: &Address, options: &str, errno: i32, says: &str) -> Result<()> {
    let mark = Mark::now()?;
    let error = initiator::attempt(address, options)
        .err()
        .context("the login succeeded")?;
    ensure!(initiator::errno(&error) == Some(errno), "{error:#}");
    mark.wait(says)?;
    Ok(())
}

pub const ECONNRESET: i32 = 104;
const EEXIST: i32 = 17;

fn unknown_port(lab: &Lab) -> Result<()> {
    let mut target = lab.target("")?;
    initiator::load("")?;
    let mut address = target.address().clone();
    address.ids.0 = "00000000000000ff".to_owned();
    refused(&address, "", ECONNRESET, "0x00010003")?;
    target.wait_output("refused ", 1)?;
    let session = initiator::login(target.address(), "")?;
    close(target, session)?;
    Ok(())
}

fn not_allowed(lab: &Lab) -> Result<()> {
    initiator::load("")?;
    let mut target = lab.target("--allow 192.0.2.0/24 --allow 2001:db8::1")?;
    refused(target.address(), "", ECONNRESET, "0x00010006")?;
    target.wait_output("not an allowed address", 1)?;
    target.stop()?;
    let target = lab.target(&format!("--allow {}", lab.program.ip))?;
    let session = initiator::login(target.address(), "")?;
    close(target, session)?;
    Ok(())
}

fn too_many(lab: &Lab) -> Result<()> {
    let (mut target, first) = lab.session("", "--max-sessions 1")?;
    refused(
        target.address(),
        "initiator_ext=0000000000000009",
        ECONNRESET,
        "0x00010001",
    )?;
    target.wait_output("too many sessions", 1)?;
    let channels = first.channels()?;
    first.logout()?;
    // The session lives as long as one of them.
    target.wait_output("logout ", channels)?;
    let second = initiator::login(target.address(), "initiator_ext=0000000000000009")?;
    close(target, second)?;
    Ok(())
}

fn nobody_listens(lab: &Lab) -> Result<()> {
    let target = lab.target("")?;
    initiator::load("")?;
    let address = target.address().clone();
    target.stop()?;
    refused(&address, "", ECONNRESET, "REJ reason 0x8")
}

fn twice(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    refused(target.address(), "", EEXIST, "Already connected")?;
    close(target, session)?;
    Ok(())
}

fn start_errors(lab: &Lab) -> Result<()> {
    let help = sh(&format!("{} --help", lab.program.file.display()))?;
    ensure!(
        help.contains("--portal") && help.contains("SIGTERM"),
        "{help}"
    );
    let image = lab.image("disk", 1)?;
    let (image, ip) = (image.display(), &lab.program.ip);
    for (options, says) in [
        (
            format!("--portal {ip}:5555 --lun /nonexistent"),
            "/nonexistent",
        ),
        (
            format!("--portal {ip}:5555 --lun /dev/null"),
            "neither a file",
        ),
        (
            format!("--portal 192.0.2.1:5555 --lun {image}"),
            "192.0.2.1:5555",
        ),
        (format!("--portal {ip} --lun {image}"), "--portal"),
        (
            format!("--portal {ip}:0 --lun {image}"),
            "no well-known port",
        ),
        (
            format!("--portal {ip}:5555 --lun {image} --max-sessions 0"),
            "--max-sessions",
        ),
        (
            format!("--portal {ip}:5555 --lun {image},ro --lun {image},ro"),
            "same serial number",
        ),
        (format!("--portal {ip}:5555"), "--lun"),
        (
            format!("--portal {ip}:5555 --lun {image},what"),
            "unknown option `what`",
        ),
    ] {
        let said = lab.program.refuse(&options)?;
        ensure!(said.contains(says), "{options}: {said}");
    }
    let target = lab.program.start(&format!("--lun {image}"))?;
    let said = lab
        .program
        .refuse(&format!("--portal {ip}:5557 --lun {image}"))?;
    ensure!(said.contains("another program"), "{said}");
    let other = lab.image("other", 1)?;
    let said = lab
        .program
        .refuse(&format!("--portal {ip}:5555 --lun {}", other.display()))?;
    ensure!(said.contains("cannot listen"), "{said}");
    target.stop()?;
    Ok(())
}

/// Commands under way come to their end, the initiator is told by
/// SRP_T_LOGOUT, then disconnected.
fn end_with_session(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("reconnect_delay=2", "")?;
    session.disk()?;
    let mark = Mark::now()?;
    let said = target.stop()?;
    ensure!(said.contains("stopping"), "{said}");
    mark.wait("received DREQ")?;
    let log = mark.since()?;
    let position = |text: &str| log.iter().position(|line| line.contains(text));
    let told = position("target logout").with_context(|| format!("no logout: {log:?}"))?;
    ensure!(position("received DREQ") > Some(told), "{log:?}");
    session.logout()
}

fn many_logins(lab: &Lab) -> Result<()> {
    const BEFORE: usize = 10;
    /// What may be cached or fragmented.
    const SLACK_KIB: u64 = 1024;
    let mut target = lab.target("")?;
    initiator::load("")?;
    let mut channels = 0;
    let mut cycle = |target: &mut Target| -> Result<()> {
        let session = initiator::login(target.address(), "")?;
        session.disk()?;
        channels += session.channels()?;
        session.logout()?;
        // The initiator does not wait for the target's end of it.
        target.wait_output("logout ", channels)
    };
    for _ in 0..BEFORE {
        cycle(&mut target)?;
    }
    let (memory, descriptors) = (target.resident()?, target.descriptors());
    let cycles = lab.size.logins;
    for number in 0..cycles {
        cycle(&mut target).with_context(|| format!("cycle {number}"))?;
    }
    let (after, open) = (target.resident()?, target.descriptors());
    println!(
        "# {memory} KiB, {descriptors} descriptors; after {cycles} cycles {after} KiB, {open}"
    );
    ensure!(
        after <= memory + SLACK_KIB,
        "memory grew: {memory} to {after} KiB"
    );
    ensure!(
        open <= descriptors,
        "descriptors: {descriptors}, then {open}"
    );
    target.stop()?;
    Ok(())
}
