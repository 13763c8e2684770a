//! One run of the test machine: QEMU with its shares, output port and console
//! log, the time limit, and the verdict.
//!
//! Why not virtme-ng: it wants a terminal on standard input, looks for the
//! kernel's modules below the machine's own `/lib/modules`, needs twice the
//! time to boot without KVM, and is a Python package that a fresh machine does
//! not have.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;
use super::{accelerator, initramfs};
use crate::{process, workspace};

const GUEST: &str = include_str!("guest/guest.sh");

/// Lines on the console that mean the kernel is beyond hope.
const KERNEL_FAILURES: [&str; 6] = [
    "Kernel panic",
    "BUG: ",
    "Oops: ",
    "soft lockup",
    "general protection fault",
    "vm: init: ",
];

/// What a kernel dies of now and then, under software emulation, while it patches its
/// own code: QEMU 7.2 can run an instruction on one CPU that the other has already
/// replaced.
pub const EMULATION_DEFECT: &str = "Oops: int3";

/// How often a machine may boot before its kernel is said to fail, as of
/// [`EMULATION_DEFECT`]. Until the command has begun, nothing is lost by booting again.
const BOOTS: usize = 3;

/// How many lines of the console are shown when a run fails.
const EXCERPT: usize = 30;

/// What to run and in which machine.
pub struct Job<'a> {
    /// The kernel to boot.
    pub kernel: &'a Kernel,
    /// Another root than the machine's own.
    pub root: Option<PathBuf>,
    /// Host folders the command may write, seen at the same path.
    pub shares: Vec<PathBuf>,
    /// Environment of the command, beyond the test machine's own.
    pub env: Vec<(String, String)>,
    /// Working directory of the command.
    pub directory: PathBuf,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The longest the whole run may take.
    pub timeout: Duration,
    /// The link to another machine, if there is one.
    pub link: Option<Link>,
}

/// One end of a link between two machines.
pub struct Link {
    /// Which end: 1 or 2.
    pub host: u8,
    /// The folder for the sockets of the link and for what the machines tell
    /// each other, the same for both ends.
    pub folder: PathBuf,
}

/// Boots the machine, copies what the command prints to `sink` while it runs,
/// and returns the command's exit status. A machine that ends before its RDMA
/// device is there is booted again, [`BOOTS`] times at most.
///
/// # Errors
/// When the machine could not be set up, the kernel failed, or the time is up;
/// the message carries the end of the console.
pub fn run(job: &Job, sink: &mut dyn Write) -> Result<u8> {
    run_until(job, sink, &Stop::default())
}

/// As [`run`], until `stop` says otherwise.
///
/// # Errors
/// As [`run`]; [`Stopped`] if it was stopped.
pub fn run_until(job: &Job, sink: &mut dyn Write, stop: &Stop) -> Result<u8> {
    let deadline = Instant::now() + job.timeout;
    until_begun(|| boot(job, sink, stop, deadline))
}

/// One boot of the machine, and what became of it.
struct Boot {
    /// Whether the command would still have its first chance after another.
    repeatable: bool,
    result: Result<u8>,
}

fn until_begun(mut boot: impl FnMut() -> Result<Boot>) -> Result<u8> {
    for _ in 1..BOOTS {
        match boot()? {
            Boot {
                repeatable: true,
                result: Err(error),
            } => eprintln!("# before the command began, {error:#}\n# another boot"),
            Boot { result, .. } => return result,
        }
    }
    boot()?.result
}

fn boot(job: &Job, sink: &mut dyn Write, stop: &Stop, deadline: Instant) -> Result<Boot> {
    let run = RunFolder::create()?;
    let console = workspace::target("vm/logs")?.join(format!("{}.log", run.name));
    run.prepare(job)?;

    let complaints = run.path.join("qemu");
    let mut machine = Machine::start(&mut qemu(job, &run, &console)?, &complaints, stop)?;
    let end = machine.copy_output(sink, deadline)?;
    if end == End::OfItself {
        machine.wait()?;
    }
    drop(machine);
    Ok(Boot {
        repeatable: end == End::OfItself && !run.has("begun") && !run.has("status"),
        result: match end {
            End::Stopped => Err(Stopped.into()),
            _ => verdict(&run, &console, end == End::OfItself, job.timeout),
        },
    })
}

/// Ends machines that run.
#[derive(Default)]
pub struct Stop(Mutex<Stopping>);

#[derive(Default)]
struct Stopping {
    stopped: bool,
    running: Vec<mpsc::Sender<Message>>,
}

impl Stop {
    /// Ends the machines that run, and those that are yet to start.
    pub fn stop(&self) {
        let mut stopping = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopping.stopped = true;
        for machine in stopping.running.drain(..) {
            // One that has ended does not listen.
            let _ = machine.send(Message::Stop);
        }
    }

    fn tell(&self, machine: mpsc::Sender<Message>) {
        let mut stopping = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stopping.stopped {
            let _ = machine.send(Message::Stop);
        } else {
            stopping.running.push(machine);
        }
    }
}

/// The machine was ended by [`Stop::stop`].
#[derive(Debug)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the test machine was stopped")
    }
}

impl std::error::Error for Stopped {}

/// How a machine ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    OfItself,
    TimeUp,
    Stopped,
}

/// What happens while a machine runs.
enum Message {
    Output(Vec<u8>),
    /// There will be no more output.
    End,
    Stop,
}

fn verdict(run: &RunFolder, console: &Path, in_time: bool, limit: Duration) -> Result<u8> {
    let said = fs::read(console).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<_> = said.lines().collect();
    let fatal = lines
        .iter()
        .position(|line| KERNEL_FAILURES.iter().any(|mark| line.contains(mark)));
    if let Some(index) = fatal {
        bail!(
            "the test machine's kernel failed\n{}",
            excerpt(&lines, index.saturating_sub(5), console)
        );
    }
    let tail = excerpt(&lines, lines.len().saturating_sub(EXCERPT), console);
    if !in_time {
        bail!(
            "the test machine did not finish within {} s\n{tail}",
            limit.as_secs()
        );
    }
    let status = fs::read_to_string(run.path.join("status")).unwrap_or_default();
    status.trim().parse().or_else(|_| {
        bail!(
            "the test machine stopped without a result: {status}{}\n{tail}",
            fs::read_to_string(run.path.join("qemu")).unwrap_or_default()
        )
    })
}

fn excerpt(lines: &[&str], start: usize, console: &Path) -> String {
    let shown: Vec<_> = lines.iter().skip(start).take(EXCERPT).copied().collect();
    format!("--- from {} ---\n{}", console.display(), shown.join("\n"))
}

/// The folder shared writable with one machine; removed afterwards.
struct RunFolder {
    name: String,
    path: PathBuf,
}

impl RunFolder {
    fn create() -> Result<Self> {
        let runs = workspace::target("vm/run")?;
        remove_abandoned(&runs);
        let pid = std::process::id();
        for number in 0.. {
            let name = format!("{pid}-{number}");
            let path = runs.join(&name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { name, path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot create {}", path.display()));
                }
            }
        }
        unreachable!("the loop has no end")
    }

    fn prepare(&self, job: &Job) -> Result<()> {
        fs::write(self.path.join("initramfs"), initramfs::build(job.kernel)?)?;
        fs::write(self.path.join("guest.sh"), GUEST)?;
        fs::write(self.path.join("config"), config(job)?)?;
        fs::write(self.path.join("command.sh"), command_script(job))?;
        Ok(())
    }

    /// Whether the guest has left a file of this name.
    fn has(&self, name: &str) -> bool {
        self.path.join(name).exists()
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Left-overs are removed by a later run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of runs whose process was killed.
fn remove_abandoned(runs: &Path) {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The variables that the guest's scripts read.
fn config(job: &Job) -> Result<String> {
    let modules = fs::canonicalize(job.kernel.modules())?;
    let mut config = format!(
        "KERNEL_VERSION={}\nKERNEL_MODULES={}\n",
        process::quote(&job.kernel.version),
        process::quote(&modules.to_string_lossy()),
    );
    if job.root.is_some() {
        // A link to a cache that several trees share leads out of this one.
        let cache = fs::canonicalize(workspace::target("vm")?)?;
        let folders = format!(
            "{} {} {}",
            workspace::root().display(),
            job.directory.display(),
            cache.display()
        );
        config += &format!("OTHER_ROOT=1\nHOST_FOLDERS={}\n", process::quote(&folders));
    }
    let host = job.link.as_ref().map(|link| link.host.to_string());
    config += &format!("HOST={}\n", host.unwrap_or_default());
    let mut tags = String::new();
    for (index, dir) in (1..).zip(&job.shares) {
        config += &format!("SHARE_{index}={}\n", process::quote(&dir.to_string_lossy()));
        tags += &format!("share{index} ");
    }
    config += &format!("SHARES={}\n", process::quote(tags.trim_end()));
    Ok(config)
}

fn command_script(job: &Job) -> String {
    let mut script = String::new();
    for (name, value) in &job.env {
        script += &format!("export {name}={}\n", process::quote(value));
    }
    let directory = process::quote(&job.directory.to_string_lossy());
    let words: Vec<_> = job
        .command
        .iter()
        .map(|word| process::quote(word))
        .collect();
    script + &format!("cd {directory} || exit 125\nexec {}\n", words.join(" "))
}

/// With MSI-X, QEMU 7.2 under software emulation now and then dies of an
/// assertion in `msix_table_mmio_write` while the guest sets up its devices.
const NO_MSIX: &str = "vectors=0";

fn qemu(job: &Job, run: &RunFolder, console: &Path) -> Result<Command> {
    // setpriv makes the kernel end QEMU when this process dies, however it dies.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
    command.args(accelerator::arguments(job.kernel)?);
    command.args(["-machine", "q35", "-cpu", "max", "-smp", "2", "-m", "2048"]);
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.arg("-kernel").arg(&job.kernel.image);
    command.arg("-initrd").arg(run.path.join("initramfs"));
    command.args([
        "-append",
        // Software emulation on a busy host starves guest CPUs for long:
        // the lockup detector gets patience (twice the threshold), and the boot
        // does not ask whether timer ticks come in time.
        "console=ttyS0 quiet panic=-1 oops=panic softlockup_panic=1 watchdog_thresh=60 \
         no_timer_check mitigations=off",
    ]);
    command
        .arg("-serial")
        .arg(format!("file:{}", console.display()));
    command.args(["-device", &format!("virtio-serial-pci,{NO_MSIX}")]);
    command.args(["-chardev", "stdio,id=output,signal=off"]);
    command.args(["-device", "virtserialport,chardev=output,name=output"]);

    share(&mut command, "host", Path::new("/"), ",readonly=on");
    share(&mut command, "run", &run.path, "");
    if let Some(root) = &job.root {
        share(&mut command, "root", root, ",readonly=on");
    }
    for (index, dir) in (1..).zip(&job.shares) {
        share(&mut command, &format!("share{index}"), dir, "");
    }
    if let Some(link) = &job.link {
        share(&mut command, "link", &link.folder, "");
        let socket = |host: u8| link.folder.join(host.to_string()).display().to_string();
        command.arg("-netdev").arg(format!(
            "dgram,id=link,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            socket(link.host),
            socket(3 - link.host),
        ));
        command.arg("-device").arg(format!(
            "virtio-net-pci,romfile=,netdev=link,mac=52:54:00:98:00:{:02x}",
            link.host
        ));
    }
    Ok(command)
}

fn share(command: &mut Command, tag: &str, dir: &Path, options: &str) {
    command.arg("-fsdev").arg(format!(
        "local,id={tag},path={},security_model=none,multidevs=remap{options}",
        // A comma ends an option; QEMU reads two as one.
        dir.display().to_string().replace(',', ",,")
    ));
    command.arg("-device").arg(format!(
        "virtio-9p-pci,fsdev={tag},mount_tag={tag},{NO_MSIX}"
    ));
}

/// A running QEMU; killed when dropped.
struct Machine {
    child: Child,
    messages: mpsc::Receiver<Message>,
}

impl Machine {
    fn start(command: &mut Command, complaints: &Path, stop: &Stop) -> Result<Self> {
        let mut child = command
            // Kept open and unused: at its end QEMU would close the output port.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(complaints)?)
            .spawn()
            .context("cannot start QEMU through setpriv")?;
        let (sender, messages) = mpsc::channel();
        stop.tell(sender.clone());
        if let Some(mut pipe) = child.stdout.take() {
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                    let output = Message::Output(buffer[..count].to_vec());
                    if sender.send(output).is_err() {
                        return;
                    }
                }
                let _ = sender.send(Message::End);
            });
        }
        Ok(Self { child, messages })
    }

    /// Copies output until QEMU ends, is to be stopped, or the deadline comes.
    fn copy_output(&self, sink: &mut dyn Write, deadline: Instant) -> Result<End> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(Message::Output(bytes)) => {
                    sink.write_all(&bytes)?;
                    sink.flush()?;
                }
                Ok(Message::Stop) => return Ok(End::Stopped),
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(End::OfItself);
                }
                Err(RecvTimeoutError::Timeout) => return Ok(End::TimeUp),
            }
        }
    }

    fn wait(&mut self) -> Result<()> {
        self.child.wait().context("cannot wait for QEMU")?;
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of machines that each end as the next of `boots` says, and how
    /// many there were.
    fn run(boots: &[(bool, Result<u8, &'static str>)]) -> (Result<u8>, usize) {
        let mut used = 0;
        let result = until_begun(|| {
            let (repeatable, result) = boots[used];
            used += 1;
            Ok(Boot {
                repeatable,
                result: result.map_err(|why| anyhow::anyhow!(why)),
            })
        });
        (result, used)
    }

    #[test]
    fn a_machine_that_ends_before_its_command_begins_is_booted_again() {
        let lost = (true, Err("the kernel failed"));
        for (boots, used) in [
            (vec![(false, Ok(3))], 1),
            (vec![lost, (false, Ok(3))], 2),
            (vec![lost, lost, (false, Ok(3))], 3),
        ] {
            let (result, count) = run(&boots);
            assert_eq!((result.unwrap(), count), (3, used));
        }
        let (result, used) = run(&[lost; BOOTS]);
        assert_eq!(result.unwrap_err().to_string(), "the kernel failed");
        assert_eq!(used, BOOTS);
    }

    #[test]
    fn a_machine_whose_command_has_begun_is_not_booted_again() {
        let (result, used) = run(&[(false, Err("the kernel failed")), (false, Ok(0))]);
        assert_eq!(result.unwrap_err().to_string(), "the kernel failed");
        assert_eq!(used, 1);
    }
}
