//! The disks that are served: opened at the start, found by logical unit
//! number, resized on request.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use srpt::backing::Backing;
use srpt::scsi::unit::{Identity, Unit};

use crate::machine;
use crate::options::LunOption;
use crate::output::{complain, say};

/// Most disks of one target.
const MOST: usize = 256;

/// How long what is to be served may be in use yet. Files that a process had in an
/// io_uring are let go of by the kernel some time after its end, so that a target
/// which is started in place of another may find them locked.
const RELEASE: Duration = Duration::from_secs(5);

/// How often to look whether it is free; there is nothing to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A disk with its number.
#[derive(Debug)]
pub struct Disk {
    /// Its logical unit number.
    pub number: u16,
    /// What initiators see.
    pub unit: Unit,
    /// Where its data is.
    pub backing: Backing,
}

impl Disk {
    /// Whether this is where its data is.
    fn is_at(&self, path: &Path) -> bool {
        path.canonicalize()
            .is_ok_and(|path| path == self.backing.path)
    }
}

/// All disks, by rising number; places in this order are what the rest of the
/// program calls the index of a disk.
#[derive(Debug)]
pub struct Disks {
    all: Vec<Disk>,
    numbers: Vec<u16>,
}

impl Disks {
    /// Opens what the command line names. What another process has is waited for
    /// up to five seconds.
    ///
    /// # Errors
    /// Which one cannot be served, and why.
    pub fn open(luns: &[LunOption], read_only: bool) -> Result<Self> {
        ensure!(luns.len() <= MOST, "more than {MOST} disks");
        let mut all: Vec<Disk> = Vec::with_capacity(luns.len());
        for lun in luns {
            let number = match lun.number {
                Some(number) => number,
                None => free_number(&all, luns)?,
            };
            if all.iter().any(|disk| disk.number == number) {
                bail!("two disks have the logical unit number {number}");
            }
            let served = all.iter().any(|disk| disk.is_at(&lun.path));
            let patience = if served { Duration::ZERO } else { RELEASE };
            let disk = open(lun, number, read_only || lun.read_only, patience)
                .with_context(|| format!("cannot serve {}", lun.path.display()))?;
            distinct(&disk, &all)?;
            all.push(disk);
        }
        all.sort_by_key(|disk| disk.number);
        let numbers = all.iter().map(|disk| disk.number).collect();
        Ok(Self { all, numbers })
    }

    /// The index of the disk with this number, and the disk.
    pub fn find(&self, number: u16) -> Option<(usize, &Disk)> {
        let index = self.numbers.binary_search(&number).ok()?;
        self.all.get(index).map(|disk| (index, disk))
    }

    /// The numbers of all disks.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// The disks.
    pub fn iter(&self) -> impl Iterator<Item = &Disk> + Clone {
        self.all.iter()
    }

    /// Looks for new sizes; `resized` is told the index of each disk that has
    /// one.
    pub fn refresh(&self, mut resized: impl FnMut(usize)) {
        for (index, disk) in self.iter().enumerate() {
            match disk.backing.bytes() {
                Ok(bytes) => {
                    if disk.unit.resize(bytes) {
                        // Who reads the line may ask the disk at once.
                        resized(index);
                        say(&format!(
                            "lun {}: now {} blocks",
                            disk.number,
                            disk.unit.blocks()
                        ));
                    }
                }
                Err(error) => complain(&format!("lun {}: {error}", disk.number)),
            }
        }
    }
}

/// The lowest number that no disk has or asks for.
fn free_number(taken: &[Disk], luns: &[LunOption]) -> Result<u16> {
    (0..)
        .find(|number| {
            let asked = luns.iter().any(|lun| lun.number == Some(*number));
            !asked && taken.iter().all(|disk| disk.number != *number)
        })
        .context("no logical unit number is left")
}

/// Demands that initiators can tell `disk` from the others: to them, two with one
/// name are two ways to the same data.
fn distinct(disk: &Disk, others: &[Disk]) -> Result<()> {
    let (identity, path) = (&disk.unit.identity, disk.backing.path.display());
    match others
        .iter()
        .find(|other| other.unit.identity.naa == identity.naa)
    {
        Some(other) => bail!(
            "{path} and {} have the same serial number {}",
            other.backing.path.display(),
            identity.serial
        ),
        None => Ok(()),
    }
}

fn open(lun: &LunOption, number: u16, read_only: bool, patience: Duration) -> Result<Disk> {
    let backing = claim(&lun.path, read_only, patience).map_err(explain)?;
    let bytes = backing.bytes()?;
    let identity = match &lun.serial {
        Some(serial) => Identity::from_serial(serial),
        None => {
            let path = backing.path.as_os_str().as_encoded_bytes();
            Identity::derived(&[machine::identity().as_slice(), path].concat())
        }
    };
    let mut unit = Unit::new(backing.block_size, bytes, identity);
    unit.read_only = read_only;
    unit.thin = backing.thin;
    ensure!(
        unit.blocks() > 0,
        "it has {bytes} bytes, less than one block of {}",
        unit.block_size()
    );
    Ok(Disk {
        number,
        unit,
        backing,
    })
}

/// Opens what nobody else uses, or will not use any more soon.
fn claim(path: &Path, read_only: bool, patience: Duration) -> io::Result<Backing> {
    let deadline = Instant::now() + patience;
    loop {
        let opened = Backing::open(path, read_only);
        let used = opened.as_ref().is_err_and(|error| {
            matches!(error.raw_os_error(), Some(libc::EWOULDBLOCK | libc::EBUSY))
        });
        if !used || Instant::now() >= deadline {
            return opened;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Puts what the error number does not say into words.
fn explain(error: io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::EWOULDBLOCK) => {
            anyhow::anyhow!("another program, or another --lun, serves it (it is locked)")
        }
        Some(libc::EBUSY) => {
            anyhow::anyhow!("it is in use: mounted, part of another device, or served already")
        }
        Some(libc::EINVAL) => anyhow::anyhow!("it is neither a file nor a block device"),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        file
    }

    fn lun(file: &tempfile::NamedTempFile, options: &str) -> LunOption {
        format!("{}{options}", file.path().display())
            .parse()
            .unwrap()
    }

    #[test]
    fn numbers_are_given_around_those_asked_for() {
        let files = [file(512), file(512), file(512)];
        let luns = [
            lun(&files[0], ""),
            lun(&files[1], ",lun=0"),
            lun(&files[2], ""),
        ];
        let disks = Disks::open(&luns, false).unwrap();
        assert_eq!(disks.numbers(), [0, 1, 2]);
        let (index, disk) = disks.find(0).unwrap();
        assert_eq!(index, 0);
        assert_eq!(disk.backing.path, files[1].path().canonicalize().unwrap());
        assert!(disks.find(3).is_none());
    }

    #[test]
    fn what_cannot_be_served_is_said() {
        let (small, good) = (file(511), file(512));
        let error = |luns: &[LunOption]| format!("{:#}", Disks::open(luns, false).unwrap_err());
        assert!(error(&[lun(&small, "")]).contains("511 bytes"));
        let twice = [lun(&good, ""), lun(&good, "")];
        assert!(error(&twice).contains("another program"));
        let other = Backing::open(good.path(), false).unwrap();
        let locked = [lun(&good, "")];
        thread::scope(|scope| {
            let opener = scope.spawn(|| Disks::open(&locked, false));
            drop(other);
            assert!(opener.join().unwrap().is_ok());
        });
        let same = [lun(&good, ",lun=3"), lun(&small, ",lun=3")];
        assert!(error(&same).contains("number 3"));
        assert!(error(&["/nonexistent".parse().unwrap()]).contains("/nonexistent"));
    }

    #[test]
    fn disks_that_initiators_could_not_tell_apart_are_refused() {
        let (one, other) = (file(512), file(512));
        let error = |luns: &[LunOption]| format!("{:#}", Disks::open(luns, true).unwrap_err());
        let long = format!(",serial={}", "x".repeat(Identity::SERIAL_LENGTH));
        for (first, second) in [
            (",serial=a".to_owned(), ",serial=a".to_owned()),
            // What of a serial number is not used makes no difference.
            (long.clone(), format!("{long}y")),
            (",serial=a b".to_owned(), ",serial=a_b".to_owned()),
        ] {
            let said = error(&[lun(&one, &first), lun(&other, &second)]);
            assert!(said.contains("same serial number"), "{said}");
        }
        let said = error(&[lun(&one, ""), lun(&one, "")]);
        assert!(said.contains("same serial number"), "{said}");
        let named = [lun(&one, ""), lun(&one, ",serial=copy")];
        assert_eq!(Disks::open(&named, true).unwrap().numbers(), [0, 1]);
    }

    #[test]
    fn sizes_are_looked_at_again() {
        let file = file(512);
        let disks = Disks::open(&[lun(&file, "")], false).unwrap();
        file.as_file().set_len(2048).unwrap();
        let mut resized = Vec::new();
        disks.refresh(|index| resized.push(index));
        disks.refresh(|index| resized.push(index));
        assert_eq!(resized, [0]);
        assert_eq!(disks.find(0).unwrap().1.unit.blocks(), 4);
    }
}
