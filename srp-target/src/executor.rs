//! Executes the commands of one channel: SCSI decides, the ring does the I/O.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use srpt::backing::{Ring, Work};
use srpt::executor::{Completed, Executor, Outcome, Plan, Request, Sense, Started, Token};
use srpt::memory::Buffer;
use srpt::scsi::attention::News;
use srpt::scsi::cdb::Cdb;
use srpt::scsi::command::{Command, decode};
use srpt::scsi::unit::Unit;
use srpt::scsi::{provision, report, report_absent, sense};
use srpt::wire::Lun;

use crate::sessions::Session;
use crate::stats::Kind;
use crate::target::Shared;

/// The executor of one channel.
pub struct DiskExecutor {
    shared: Arc<Shared>,
    session: Arc<Session>,
    ring: Ring,
    /// When commands under way were begun, by token; only when counting.
    begun: Vec<Option<(Kind, Instant)>>,
}

/// What a command comes to once its data is there.
enum Step {
    /// Data about the disk.
    Data(Vec<u8>),
    /// I/O on disk number `disk`, with `good` bytes moved if it succeeds.
    Disk {
        disk: usize,
        kind: Kind,
        work: Work,
        good: u32,
    },
}

impl DiskExecutor {
    /// An executor for a channel of `session`.
    ///
    /// # Errors
    /// As [`Ring::new`].
    pub fn new(shared: Arc<Shared>, session: Arc<Session>) -> std::io::Result<Self> {
        let ring = Ring::new(shared.disks.iter().map(|disk| &disk.backing))?;
        Ok(Self {
            shared,
            session,
            ring,
            begun: Vec::new(),
        })
    }

    fn plan_or_refuse(&self, request: &Request<'_>) -> Result<Plan, Sense> {
        let cdb = Cdb::new(request.cdb);
        let disks = &self.shared.disks;
        let Some((index, disk)) = request.lun.number().and_then(|number| disks.find(number)) else {
            let (data, allocation) = report_absent(&cdb, disks.numbers())?;
            return Ok(Plan::In(allocation.min(data.len() as u32)));
        };
        let news = self.session.attention(index);
        if let Some(sense) = news.and_then(|news| news.take(cdb.opcode())) {
            return Err(sense);
        }
        let command = decode(&cdb, &disk.unit)?;
        if let Command::Report { about, allocation } = command {
            let data = report(about, &cdb, &disk.unit, disks.numbers())?;
            return Ok(Plan::In(allocation.min(data.len() as u32)));
        }
        Ok(match (command.data_out(&disk.unit), command.data_in()) {
            (0, 0) if matches!(command, Command::Flush | Command::WriteSame { .. }) => Plan::NoData,
            (0, 0) => Plan::Answer(Outcome::good(0)),
            (0, length) => Plan::In(length),
            (length, _) => Plan::Out(length),
        })
    }

    /// What `request` comes to, given the data from the initiator.
    fn step(&self, request: &Request<'_>, buffer: &[u8]) -> Result<Step, Sense> {
        let cdb = Cdb::new(request.cdb);
        let disks = &self.shared.disks;
        let Some((index, disk)) = request.lun.number().and_then(|number| disks.find(number)) else {
            return report_absent(&cdb, disks.numbers()).map(|(data, _)| Step::Data(data));
        };
        let unit = &disk.unit;
        let io = |kind, work, good: usize| Step::Disk {
            disk: index,
            kind,
            work,
            // A buffer's length, or less.
            good: good as u32,
        };
        Ok(match decode(&cdb, unit)? {
            Command::Nothing => Step::Data(Vec::new()),
            Command::Report { about, .. } => {
                Step::Data(report(about, &cdb, unit, disks.numbers())?)
            }
            Command::Read(extent) => {
                let length = within(extent.length, buffer);
                let work = Work::Read {
                    offset: extent.offset,
                    length,
                };
                io(Kind::Read, work, length)
            }
            Command::Write { extent, fua } => {
                let length = whole_blocks(within(extent.length, buffer), unit);
                let work = Work::Write {
                    offset: extent.offset,
                    length,
                    sync: fua,
                };
                io(Kind::Write, work, length)
            }
            Command::Flush => io(Kind::Other, Work::Sync, 0),
            Command::Unmap { list } => {
                let length = within(list.into(), buffer);
                let list = buffer.get(..length).unwrap_or_default();
                let work = Work::Clear {
                    extents: provision::ranges(list, unit)?,
                    release: true,
                };
                io(Kind::Other, work, length)
            }
            Command::WriteSame {
                extent,
                unmap,
                zeros,
            } => {
                let length = if zeros { 0 } else { unit.block_size() as usize };
                let block = buffer
                    .get(..length)
                    .ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
                let work = if block.iter().all(|byte| *byte == 0) {
                    Work::Clear {
                        extents: vec![extent],
                        release: unmap,
                    }
                } else {
                    Work::Repeat {
                        extent,
                        block: block.to_vec(),
                    }
                };
                io(Kind::Other, work, length)
            }
        })
    }

    /// Notes that a command begins, if commands are counted.
    fn note(&mut self, token: Token, kind: Kind) {
        if self.shared.stats.is_none() {
            return;
        }
        let index = usize::from(token.0);
        if self.begun.len() <= index {
            self.begun.resize(index + 1, None);
        }
        if let Some(place) = self.begun.get_mut(index) {
            *place = Some((kind, Instant::now()));
        }
    }
}

impl Executor for DiskExecutor {
    fn plan(&mut self, request: &Request<'_>) -> Plan {
        self.plan_or_refuse(request)
            .unwrap_or_else(|sense| Plan::Answer(Outcome::check(sense)))
    }

    fn start(&mut self, token: Token, request: &Request<'_>, mut buffer: Buffer) -> Started {
        let outcome = match self.step(request, &buffer) {
            Ok(Step::Data(data)) => {
                for (to, from) in buffer.iter_mut().zip(&data) {
                    *to = *from;
                }
                Outcome::good(buffer.len().min(data.len()) as u32)
            }
            Ok(Step::Disk {
                disk,
                kind,
                work,
                good,
            }) => {
                self.note(token, kind);
                // At most as many as disks.
                return match self.ring.start(token, disk as u32, work, buffer, good) {
                    Ok(()) => Started::Pending,
                    Err(completed) => Started::Done(completed),
                };
            }
            Err(sense) => Outcome::check(sense),
        };
        Started::Done(Completed {
            token,
            outcome,
            buffer,
        })
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completed)) {
        let (begun, stats) = (&mut self.begun, &self.shared.stats);
        self.ring.poll(&mut |completed| {
            if let Some(stats) = stats {
                let place = begun.get_mut(usize::from(completed.token.0));
                if let Some((kind, since)) = place.and_then(Option::take) {
                    stats.count(kind, completed.outcome.transferred, since.elapsed());
                }
            }
            done(completed);
        });
    }

    fn abort(&mut self, token: Token) {
        self.ring.cancel(token);
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn has_backlog(&self) -> bool {
        self.ring.has_backlog()
    }

    fn reset(&mut self, lun: Lun) {
        let disk = lun
            .number()
            .and_then(|number| self.shared.disks.find(number));
        if let Some((index, _)) = disk {
            self.shared.sessions.announce(index, News::Reset);
        }
    }
}

/// `length`, or what the buffer has if that is less.
fn within(length: u64, buffer: &[u8]) -> usize {
    usize::try_from(length).map_or(buffer.len(), |length| length.min(buffer.len()))
}

fn whole_blocks(length: usize, unit: &Unit) -> usize {
    // Block sizes are powers of two.
    length & !(unit.block_size() as usize - 1)
}

#[cfg(test)]
mod tests {
    use srpt::executor::status::GOOD;
    use srpt::memory::Pool;
    use srpt::wire::{PortId, Tag, TaskAttribute};

    use super::*;
    use crate::disks::Disks;
    use crate::sessions::Sessions;

    const LUN: Lun = Lun([0, 7, 0, 0, 0, 0, 0, 0]);

    struct Bench {
        executor: DiskExecutor,
        pool: Pool,
        _file: tempfile::NamedTempFile,
    }

    impl Bench {
        /// A disk of 1 MiB, power-on attention told; `None` where the kernel
        /// allows no io_uring.
        fn new(options: &str) -> Option<Self> {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(1 << 20).unwrap();
            let lun = format!("{},lun=7{options}", file.path().display());
            let disks = Disks::open(&[lun.parse().unwrap()], false).unwrap();
            let shared = Arc::new(Shared {
                disks,
                sessions: Sessions::new(1, 1),
                stats: Some(crate::stats::Stats::default()),
            });
            let session = shared.sessions.join(1, PortId([1; 16])).unwrap();
            let mut bench = Self {
                executor: DiskExecutor::new(shared, session).ok()?,
                pool: Pool::new(4 << 20, 1 << 20).unwrap(),
                _file: file,
            };
            let (outcome, _) = bench.run(LUN, &[0], &[], 0);
            assert_eq!(outcome, Outcome::check(sense::POWER_ON));
            Some(bench)
        }

        /// Plans and executes a command as a channel does.
        fn run(&mut self, lun: Lun, cdb: &[u8], out: &[u8], room: u32) -> (Outcome, Vec<u8>) {
            let mut padded = [0; 16];
            padded[..cdb.len()].copy_from_slice(cdb);
            let request = Request {
                tag: Tag::default(),
                lun,
                cdb: &padded,
                attribute: TaskAttribute::Simple,
                data_out: out.len() as u32,
                data_in: room,
            };
            let length = match self.executor.plan(&request) {
                Plan::Answer(outcome) => return (outcome, Vec::new()),
                Plan::NoData => 0,
                Plan::In(length) => length.min(room),
                Plan::Out(length) => length.min(out.len() as u32),
            };
            let mut buffer = self.pool.take(length as usize).unwrap();
            for (to, from) in buffer.iter_mut().zip(out) {
                *to = *from;
            }
            let mut ended = match self.executor.start(Token(0), &request, buffer) {
                Started::Done(completed) => Some(completed),
                Started::Pending => None,
            };
            while ended.is_none() {
                self.executor.poll(&mut |completed| ended = Some(completed));
            }
            let completed = ended.unwrap();
            let data =
                completed.buffer[..completed.outcome.transferred.min(length) as usize].to_vec();
            self.pool.give_back(completed.buffer);
            (completed.outcome, data)
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let Some(mut bench) = Bench::new("") else {
            return;
        };
        let data: Vec<_> = (0..8192_u32).map(|at| (at % 251) as u8).collect();
        let write = [0x2a, 8, 0, 0, 0, 100, 0, 0, 16];
        let read = [0x28, 0, 0, 0, 0, 100, 0, 0, 16];
        assert_eq!(bench.run(LUN, &write, &data, 0).0, Outcome::good(8192));
        let (outcome, found) = bench.run(LUN, &read, &[], 8192);
        assert_eq!((outcome, found), (Outcome::good(8192), data));
        assert_eq!(bench.run(LUN, &[0x35], &[], 0).0, Outcome::good(0));
    }

    #[test]
    fn blocks_given_back_or_filled_read_so() {
        let Some(mut bench) = Bench::new("") else {
            return;
        };
        let ones = vec![1; 4096];
        let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 8];
        assert_eq!(
            bench
                .run(LUN, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 8], &ones, 0)
                .0
                .status,
            GOOD
        );
        let list = [
            0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0,
        ];
        let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24];
        assert_eq!(bench.run(LUN, &unmap, &list, 0).0, Outcome::good(24));
        assert_eq!(bench.run(LUN, &read, &[], 4096).1, [0; 4096]);
        let same = [0x41, 0, 0, 0, 0, 1, 0, 0, 2];
        assert_eq!(bench.run(LUN, &same, &[5; 512], 0).0, Outcome::good(512));
        let found = bench.run(LUN, &read, &[], 4096).1;
        let expected: Vec<_> = (0..4096)
            .map(|at| if (512..1536).contains(&at) { 5 } else { 0 })
            .collect();
        assert_eq!(found, expected);
        let (outcome, _) = bench.run(LUN, &same, &[5; 511], 0);
        assert_eq!(outcome, Outcome::check(sense::PARAMETER_LIST_LENGTH_ERROR));
    }

    #[test]
    fn less_data_than_announced_moves_whole_blocks_only() {
        let Some(mut bench) = Bench::new("") else {
            return;
        };
        let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 4];
        assert_eq!(bench.run(LUN, &write, &[9; 1000], 0).0, Outcome::good(512));
        let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 2];
        assert_eq!(bench.run(LUN, &read, &[], 700).0, Outcome::good(700));
        let found = bench.run(LUN, &read, &[], 1024).1;
        assert_eq!((found[511], found[512]), (9, 0));
    }

    #[test]
    fn units_that_do_not_exist_are_answered_for() {
        let Some(mut bench) = Bench::new("") else {
            return;
        };
        for lun in [
            Lun([0, 6, 0, 0, 0, 0, 0, 0]),
            Lun([0xc1, 1, 0, 0, 0, 0, 0, 0]),
        ] {
            let (outcome, data) = bench.run(lun, &[0x12, 0, 0, 0, 36], &[], 36);
            assert_eq!((outcome, data[0]), (Outcome::good(36), 0x7f));
            let (outcome, _) = bench.run(lun, &[0x28], &[], 0);
            assert_eq!(outcome, Outcome::check(sense::LOGICAL_UNIT_NOT_SUPPORTED));
            let (_, data) = bench.run(lun, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64], &[], 64);
            assert_eq!(data[8..], [0, 7, 0, 0, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn a_read_only_disk_is_not_written() {
        let Some(mut bench) = Bench::new(",ro") else {
            return;
        };
        let (outcome, _) = bench.run(LUN, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512], 0);
        assert_eq!(outcome, Outcome::check(sense::WRITE_PROTECTED));
    }

    #[test]
    fn a_short_allocation_gets_the_beginning() {
        let Some(mut bench) = Bench::new("") else {
            return;
        };
        let (outcome, data) = bench.run(LUN, &[0x12, 0, 0, 0, 5], &[], 36);
        assert_eq!((outcome, data.len()), (Outcome::good(5), 5));
    }

    #[test]
    fn a_reset_is_told() {
        let Some(mut bench) = Bench::new("") else {
            return;
        };
        bench.executor.reset(LUN);
        assert_eq!(
            bench.run(LUN, &[0], &[], 0).0,
            Outcome::check(sense::DEVICE_RESET)
        );
        assert_eq!(bench.run(LUN, &[0], &[], 0).0, Outcome::good(0));
    }
}
