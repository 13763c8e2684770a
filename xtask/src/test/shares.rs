//! Sharing the pieces of a suite out to several machines, each of which takes the
//! next when it is done with one, and going on with a fresh machine when one is
//! lost.

use anyhow::{Result, anyhow, bail};

use super::beside::Beside;
use super::parallel;
use crate::queue::{Piece, Queue, Taker};
use crate::report::{Outcome, Suite};
use crate::vm::machine::EMULATION_DEFECT;

/// A suite made of pieces that are independent of one another.
pub struct Shares {
    /// The pieces, as the part beside the device knows them.
    pub pieces: Vec<String>,
    /// Machines that run them.
    pub machines: usize,
    /// What else to ask of the part beside the device.
    pub options: Vec<String>,
    /// The case whose result says that a piece came to its end.
    pub ended: fn(&str) -> String,
    /// What the console says when the machine's kernel fails by a defect that is
    /// known to be its own, beside [`EMULATION_DEFECT`]: the piece that met it is tried
    /// again.
    pub defects: &'static [&'static str],
}

/// Starts a machine that takes pieces until there are none, or it is lost.
trait Machine: Fn(&Queue, &Taker, &mut Suite) -> Result<()> + Sync {}

impl<F: Fn(&Queue, &Taker, &mut Suite) -> Result<()> + Sync> Machine for F {}

/// How many machines may be lost one after the other to defects of the kernel.
const TRIES: usize = 3;

impl Shares {
    /// Runs all pieces.
    pub fn run(&self, beside: &Beside, suite: &mut Suite) -> Result<()> {
        let machine = |queue: &Queue, taker: &Taker, suite: &mut Suite| {
            beside.start_taking(queue, taker, &self.options, suite)
        };
        self.run_on(&machine, suite)
    }

    /// The same on machines that are started by `machine`.
    fn run_on(&self, machine: &impl Machine, suite: &mut Suite) -> Result<()> {
        let queue = Queue::new(&self.pieces)?;
        let numbers: Vec<_> = (1..=self.machines).collect();
        let results = parallel::each(&numbers, self.machines, |number| {
            let mut part = suite.part(*number);
            let result = self.run_part(machine, &queue, *number, &mut part);
            (part, result)
        });
        let mut outcome = Ok(());
        for (part, result) in results {
            suite.cases.extend(part.cases);
            outcome = outcome.and(result);
        }
        if outcome.is_ok() && !queue.is_empty()? {
            bail!("no machine took what is left");
        }
        outcome
    }

    /// Runs pieces while there are any. One that hangs, or takes the machine down,
    /// is a failed case; after that, or when a machine has left by itself, a fresh
    /// machine goes on.
    fn run_part(
        &self,
        machine: &impl Machine,
        queue: &Queue,
        number: usize,
        suite: &mut Suite,
    ) -> Result<()> {
        let taker = queue.taker(number)?;
        let mut tries = 0;
        while !queue.is_empty()? {
            let before = taker.taken()?.len();
            let result = machine(queue, &taker, suite);
            let taken = taker.taken()?;
            let idle = taken.len() == before;
            let lost = self.lost(taken, suite);
            let error = match result {
                Ok(()) if idle => break,
                Ok(()) if lost.is_empty() => {
                    tries = 0;
                    continue;
                }
                Ok(()) => anyhow!("no results at all"),
                Err(error) => error,
            };
            let why = format!("{error:#}");
            suite.say(&why);
            tries += 1;
            let mut known = self.defects.iter().chain([&EMULATION_DEFECT]);
            if tries < TRIES && known.any(|mark| why.contains(mark)) {
                suite.say("# a known defect of the kernel, or of its emulation: once more");
                lost.iter().try_for_each(|piece| taker.give_back(piece))?;
                continue;
            }
            if lost.is_empty() {
                return Err(error);
            }
            tries = 0;
            for piece in lost {
                suite.record((self.ended)(&piece.name), Outcome::Failed(why.clone()));
            }
        }
        Ok(())
    }

    /// Those that have not come to their end.
    fn lost(&self, mut taken: Vec<Piece>, suite: &Suite) -> Vec<Piece> {
        taken.retain(|piece| {
            let end = (self.ended)(&piece.name);
            !suite.cases.iter().any(|case| case.name == end)
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::report::Case;

    const DEFECT: &str = "RIP: known";

    fn shares() -> Shares {
        Shares {
            pieces: (0..20).map(|number| format!("piece {number}")).collect(),
            machines: 3,
            options: Vec::new(),
            ended: |piece| format!("{piece} ends"),
            defects: &[DEFECT],
        }
    }

    /// Runs pieces as `piece` says of each, and returns how often a machine was
    /// started, which pieces have failed, and the result.
    fn run(piece: impl Fn(&str) -> Result<()> + Sync) -> (usize, Vec<String>, Result<()>) {
        let starts = AtomicUsize::new(0);
        let machine = |_: &Queue, taker: &Taker, suite: &mut Suite| {
            starts.fetch_add(1, Ordering::Relaxed);
            while let Some(name) = taker.take()? {
                piece(&name)?;
                suite.record(format!("{name} ends"), Outcome::Passed);
            }
            Ok(())
        };
        let mut suite = Suite::new("shared");
        let result = shares().run_on(&machine, &mut suite);
        let failed = |case: &&Case| matches!(case.outcome, Outcome::Failed(_));
        let failed = suite.cases.iter().filter(failed);
        let failed = failed.map(|case| case.name.clone()).collect();
        assert!(result.is_err() || suite.cases.len() == shares().pieces.len());
        (starts.into_inner(), failed, result)
    }

    #[test]
    fn every_piece_is_run_once() {
        let (starts, failed, result) = run(|_| Ok(()));
        result.unwrap();
        assert!(starts <= 3);
        assert!(failed.is_empty());
    }

    #[test]
    fn a_piece_that_takes_its_machine_down_has_failed_and_others_go_on() {
        let (_, failed, result) = run(|name| match name {
            "piece 7" => bail!("the machine's kernel failed"),
            _ => Ok(()),
        });
        result.unwrap();
        assert_eq!(failed, ["piece 7 ends"]);
    }

    #[test]
    fn a_piece_that_meets_a_known_defect_is_tried_again() {
        for defect in [DEFECT, EMULATION_DEFECT] {
            let met = AtomicUsize::new(0);
            let (_, failed, result) = run(|name| {
                if name == "piece 7" && met.fetch_add(1, Ordering::Relaxed) == 0 {
                    bail!("the machine's kernel failed: {defect}");
                }
                Ok(())
            });
            result.unwrap();
            assert!(failed.is_empty());
        }
    }

    #[test]
    fn a_piece_that_always_meets_a_known_defect_has_failed() {
        let (starts, failed, result) = run(|name| match name {
            "piece 7" => bail!("the machine's kernel failed: {DEFECT}"),
            _ => Ok(()),
        });
        result.unwrap();
        assert_eq!(failed, ["piece 7 ends"]);
        assert!(starts <= 3 + 3 * TRIES);
    }

    #[test]
    fn machines_that_do_not_start_end_the_suite() {
        let machine = |_: &Queue, _: &Taker, _: &mut Suite| bail!("no such kernel");
        let result = shares().run_on(&machine, &mut Suite::new("shared"));
        assert_eq!(result.unwrap_err().to_string(), "no such kernel");
    }

    #[test]
    fn machines_that_take_nothing_are_noticed() {
        let machine = |_: &Queue, _: &Taker, _: &mut Suite| Ok(());
        let result = shares().run_on(&machine, &mut Suite::new("shared"));
        result.unwrap_err();
    }
}
