//! The other machine: the second one serves requests of the first, which come
//! as files in the folder that both share. Requests are answered one after the
//! other; programs that one started go on while others are served.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::guest::program::{self, Ready, Running};
use crate::library::Library;
use crate::process;

/// The folder that both machines see.
const SHARED: &str = "/run/link";

/// How often to look for a file of the other machine; the shared file system
/// reports nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The longest an answer may take: a program's limit, and what is around it.
const LIMIT: Duration = Duration::from_secs(program::LIMIT.as_secs() + 30);

/// How requests call the original.
const ORIGINAL: &str = "original";

/// What ends the second machine's service.
const LEAVE: &str = "leave";

fn file(kind: &str, number: usize) -> PathBuf {
    Path::new(SHARED).join(format!("{kind}-{number}"))
}

/// Writes a file so that the other machine sees it complete or not at all.
fn publish(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text)?;
    fs::rename(&draft, path).with_context(|| format!("cannot write {}", path.display()))
}

/// The second machine, seen from the first; told to end when dropped.
pub struct Remote {
    requests: Cell<usize>,
}

impl Remote {
    /// The machine that calls [`serve`] now or soon.
    pub fn new() -> Self {
        Self {
            requests: Cell::new(0),
        }
    }

    /// Posts a request without waiting for an answer.
    fn post(&self, request: &str) -> Result<usize> {
        let number = self.requests.get();
        self.requests.set(number + 1);
        publish(&file("request", number), request)?;
        Ok(number)
    }

    /// Has the other machine do something and returns what it says.
    fn call(&self, request: &str) -> Result<String> {
        let number = self.post(request)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Ok(answer) = fs::read_to_string(file("answer", number)) {
                return match answer.split_once('\n') {
                    Some(("ok", said)) => Ok(said.to_owned()),
                    Some((_, said)) => bail!("{said} (on the other machine)"),
                    None => bail!("the other machine gave half an answer: {answer}"),
                };
            }
            ensure!(
                Instant::now() < deadline,
                "the other machine did not answer: {request}"
            );
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Runs a shell command there, to its end.
    pub fn shell(&self, line: &str) -> Result<()> {
        self.call(&format!("shell {line}")).map(drop)
    }

    /// Starts a program there.
    pub fn start(&self, words: &str, library: &Library) -> Result<There<'_>> {
        let library = match library {
            Library::Original => ORIGINAL.to_owned(),
            Library::Ours(folder) => folder.display().to_string(),
        };
        let number = self.call(&format!("start {library} {words}"))?;
        Ok(There {
            remote: self,
            number: number.trim().parse()?,
        })
    }

    /// Ends the machine as if its power failed. It never answers again.
    pub fn crash(&self) -> Result<()> {
        self.post("crash").map(drop)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // A machine that does not hear it is ended by its time limit.
        let _ = self.post(LEAVE);
    }
}

/// A program on the second machine.
pub struct There<'a> {
    remote: &'a Remote,
    number: usize,
}

impl There<'_> {
    fn call(&self, request: &str) -> Result<String> {
        let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
        self.remote.call(&format!("{verb} {} {rest}", self.number))
    }

    /// Waits until the kernel lists an identifier of it that listens.
    pub fn wait_listening(&self) -> Result<()> {
        self.call("listening").map(drop)
    }

    /// Waits until it has printed this text.
    pub fn wait_printed(&self, text: &str) -> Result<()> {
        self.call(&format!("printed {text}")).map(drop)
    }

    /// What it has printed so far.
    pub fn output(&self) -> Result<String> {
        self.call("output")
    }

    /// The librdmacm file that it has mapped.
    pub fn mapped(&self) -> Result<PathBuf> {
        self.call("mapped").map(PathBuf::from)
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        self.call("terminate").map(drop)
    }

    /// Waits for its end, and demands that it succeeds.
    pub fn wait_success(&self) -> Result<()> {
        self.call("finish").map(drop)
    }
}

/// The second machine's part: obeys the first until that lets it go.
pub fn serve() -> Result<()> {
    let mut programs = BTreeMap::new();
    for number in 0.. {
        let path = file("request", number);
        let deadline = Instant::now() + super::LIMIT;
        let request = loop {
            match fs::read_to_string(&path) {
                Ok(request) => break request,
                Err(_) => ensure!(Instant::now() < deadline, "no request {number} came"),
            }
            thread::sleep(LOOK_AGAIN);
        };
        if request == LEAVE {
            break;
        }
        let answer = match obey(&request, number, &mut programs) {
            Ok(said) => format!("ok\n{said}"),
            Err(error) => format!("error\n{error:#}"),
        };
        publish(&file("answer", number), &answer)?;
    }
    Ok(())
}

fn obey(request: &str, number: usize, programs: &mut BTreeMap<usize, Running>) -> Result<String> {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    match verb {
        "shell" => return process::output(Command::new("sh").args(["-c", rest])),
        "start" => {
            let words: Vec<_> = rest.split(' ').collect();
            let (library, words) = words.split_first().context("no library")?;
            let library = match *library {
                ORIGINAL => Library::Original,
                folder => Library::Ours(folder.into()),
            };
            programs.insert(number, program::start(words, &library)?);
            return Ok(number.to_string());
        }
        "crash" => {
            // What the machine's verdict will be; nothing can write it later.
            fs::write("/run/vm/status", "0\n")?;
            fs::write("/proc/sysrq-trigger", "b")?;
            bail!("the machine is still there");
        }
        _ => {}
    }
    let (program, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let program = programs
        .get_mut(&program.parse()?)
        .context("no such program")?;
    match verb {
        "listening" => program.wait_ready(Ready::Listening)?,
        "printed" => program.wait_until("printed what is expected", |program| {
            Ok(program.output().contains(rest))
        })?,
        "output" => return Ok(program.output()),
        "mapped" => return Ok(program.mapped()?.display().to_string()),
        "terminate" => program.terminate()?,
        "finish" => program.wait_success()?,
        _ => bail!("what is {verb}?"),
    }
    Ok(String::new())
}
