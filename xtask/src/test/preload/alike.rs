//! What socket calls return, on the kernel's sockets and with the preload
//! library: a program of cases writes down each result
//! (`xtask/programs/preload/same.c`), and has to write the same both times.

use anyhow::{Result, bail};

use crate::report::{Case, Outcome, Suite};

/// The cases of a program's output, each with the remarks above its line.
fn cases(output: &str) -> Vec<(Case, Vec<&str>)> {
    let mut remarks = Vec::new();
    let mut cases = Vec::new();
    for line in output.lines() {
        match Case::parse(line) {
            Some(case) => cases.push((case, std::mem::take(&mut remarks))),
            None => remarks.push(line),
        }
    }
    cases
}

/// Records, for each case of the kernel's output, whether that with the library
/// is the same.
pub fn record(by_kernel: &str, with_library: &str, suite: &mut Suite) {
    let with_library = cases(with_library);
    for (case, expected) in cases(by_kernel) {
        let found = with_library
            .iter()
            .find(|(found, _)| found.name == case.name);
        let result = match found {
            None => Err(anyhow::anyhow!("it did not run")),
            Some((found, remarks)) => compare(&case, &expected, found, remarks),
        };
        suite.check(format!("as by TCP: {}", case.name), result);
    }
}

fn compare(case: &Case, expected: &[&str], found: &Case, remarks: &[&str]) -> Result<()> {
    let differ = (expected.iter().zip(remarks)).find(|(expected, remark)| expected != remark);
    if let Some((expected, remark)) = differ {
        bail!("{remark} (by TCP {expected})");
    }
    for (what, case) in [("by TCP", case), ("with the library", found)] {
        if let Outcome::Failed(why) = &case.outcome {
            bail!("it fails {what}: {why}: {}", remarks.join(" | "));
        }
    }
    match expected.len().cmp(&remarks.len()) {
        std::cmp::Ordering::Equal => Ok(()),
        _ => bail!("{} results (by TCP {})", remarks.len(), expected.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(by_kernel: &str, with_library: &str) -> Vec<bool> {
        let mut suite = Suite::new("alike");
        record(by_kernel, with_library, &mut suite);
        let passed = |case: &Case| case.outcome == Outcome::Passed;
        suite.cases.iter().map(passed).collect()
    }

    #[test]
    fn the_same_results_pass_and_others_do_not() {
        let kernel = "# a: 1\n# b: 2\nok - first\n# c: 3\nok - second\n";
        assert_eq!(outcomes(kernel, kernel), [true, true]);
        let other = kernel.replace("b: 2", "b: EINVAL");
        assert_eq!(outcomes(kernel, &other), [false, true]);
        assert_eq!(
            outcomes(kernel, "# a: 1\n# b: 2\nok - first\n"),
            [true, false]
        );
        assert_eq!(
            outcomes(kernel, &kernel.replace("# a: 1\n# b: 2\n", "")),
            [false, true]
        );
        let failed = kernel.replace("ok - second", "not ok - second");
        assert_eq!(outcomes(kernel, &failed), [true, false]);
        assert_eq!(outcomes(&failed, &failed), [true, false]);
    }
}
