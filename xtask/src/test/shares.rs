//! Sharing the pieces of a suite out to several machines, and going on with a
//! fresh machine when one is lost.

use anyhow::{Result, bail};

use super::beside::Beside;
use super::parallel;
use crate::report::{Outcome, Suite};

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
    /// known to be its own: the piece that met it is tried again.
    pub defects: &'static [&'static str],
}

/// How often a piece is tried that meets defects of the kernel.
const TRIES: usize = 3;

impl Shares {
    /// Runs all pieces, in turn one for each machine.
    pub fn run(&self, beside: &Beside, suite: &mut Suite) -> Result<()> {
        let mut parts = vec![Vec::new(); self.machines];
        for (part, piece) in (0..self.machines).cycle().zip(&self.pieces) {
            parts[part].push(piece.clone());
        }
        let parts: Vec<_> = (1..).zip(parts).collect();
        let results = parallel::each(&parts, self.machines, |(number, pieces)| {
            let mut part = suite.part(*number);
            let result = self.run_part(beside, pieces.clone(), &mut part);
            (part, result)
        });
        let mut outcome = Ok(());
        for (part, result) in results {
            suite.cases.extend(part.cases);
            outcome = outcome.and(result);
        }
        outcome
    }

    /// Runs pieces. One that hangs, or takes the machine down, is a failed
    /// case; what that leaves, or what a machine has left by itself, gets a
    /// fresh machine.
    fn run_part(&self, beside: &Beside, mut left: Vec<String>, suite: &mut Suite) -> Result<()> {
        let mut tries = 0;
        while !left.is_empty() {
            let before = left.len();
            let result = beside.start(&[&left[..], &self.options].concat(), suite);
            left.retain(|piece| {
                let end = (self.ended)(piece);
                !suite.cases.iter().any(|case| case.name == end)
            });
            match result {
                Ok(()) if left.len() == before => bail!("no results at all"),
                Ok(()) => {}
                Err(error) if left.is_empty() => return Err(error),
                Err(error) => {
                    let why = format!("{error:#}");
                    suite.say(&why);
                    tries = if left.len() == before { tries + 1 } else { 1 };
                    let known = self.defects.iter().any(|mark| why.contains(mark));
                    if known && tries < TRIES {
                        suite.say("# a known defect of the kernel: once more");
                        continue;
                    }
                    suite.record((self.ended)(&left.remove(0)), Outcome::Failed(why));
                }
            }
        }
        Ok(())
    }
}
