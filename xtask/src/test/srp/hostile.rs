//! The initiator that speaks SRP wrongly (`programs/srp/hostile.c`, where the
//! list is) on our target.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Lab;
use crate::guest::program;
use crate::library::Library;
use crate::report::{Case, Suite};

/// The program's file.
pub const PROGRAM: &str = "srp-hostile";

/// Each case takes a second or two when everything is emulated.
const PATIENCE: Duration = Duration::from_secs(900);

/// The last of the suite's cases about it.
pub const LAST: &str = "hostile: srp-target lives and ends well";

/// Runs it; each of its cases is a case of the suite.
pub fn run(lab: &Lab, programs: &Path, suite: &mut Suite) -> Result<()> {
    let mut target = lab.target("")?;
    let address = target.address().clone();
    let (ip, port) = address.portal.rsplit_once(':').context("no port")?;
    let file = programs.join(PROGRAM);
    let words = [
        &file.to_string_lossy(),
        ip,
        port,
        &address.ids.0,
        &address.ids.1,
    ];
    let mut hostile = program::start(&words, &Library::Original)?;
    let ended = hostile
        .wait_for(PATIENCE)
        .and_then(|status| status.context("it hangs"));
    let output = hostile.output();
    let cases: Vec<_> = output.lines().filter_map(Case::parse).collect();
    let tried = cases.len();
    for case in cases {
        suite.record(case.name, case.outcome);
    }
    let all = ended.and_then(|status| {
        // It leaves the rest when it cannot even connect.
        let planned = output.lines().find_map(|line| line.strip_prefix("1.."));
        let planned: usize = planned.context("no plan")?.parse()?;
        ensure!(
            planned == tried,
            "{tried} of {planned}, {status}: {}",
            hostile.said()
        );
        Ok(())
    });
    suite.check("hostile: all was tried", all);
    suite.check(LAST, {
        (|| {
            ensure!(target.is_alive()?, "{}", target.output());
            target.stop().map(drop)
        })()
    });
    Ok(())
}
