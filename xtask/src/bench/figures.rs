//! The figures of one row: what was measured on each library, their medians,
//! spread and ratio.

use anyhow::Result;

use crate::guest::Bench;
use crate::library::Library;

/// What was measured on the original and on ours.
#[derive(Default)]
pub struct Figures {
    original: Vec<f64>,
    ours: Vec<f64>,
    failures: [Failures; 2],
}

/// What went wrong on a library.
#[derive(Default)]
struct Failures {
    count: usize,
    last: String,
}

/// So many failures, and it is not tried again, as each may take long.
const MOST_FAILURES: usize = 2;

impl Figures {
    /// The head of the table. All figures are costs: a ratio above 1 means
    /// that ours costs less.
    pub const HEADER: &'static str = "| what | unit | original, median (least to most) \
        | ours, median (least to most) | original / ours |\n|---|---|---|---|---|";

    /// Measures so many times on each library, each first in every other round;
    /// less often what fails.
    pub fn measured(
        rounds: usize,
        bench: &Bench,
        mut measure: impl FnMut(&Library) -> Result<f64>,
    ) -> Self {
        let mut figures = Self::default();
        for which in (0..rounds).flat_map(order) {
            if figures.failures[which].count < MOST_FAILURES {
                figures.take(which, measure(library(which, bench)));
            }
        }
        figures
    }

    /// Takes what was measured: 0 is the original, 1 is ours.
    pub fn take(&mut self, which: usize, figure: Result<f64>) {
        match figure {
            Ok(figure) if which == 0 => self.original.push(figure),
            Ok(figure) => self.ours.push(figure),
            Err(error) => {
                self.failures[which].count += 1;
                self.failures[which].last = format!("{error:#}");
            }
        }
    }

    /// The row of the table.
    pub fn row(&self, name: &str, unit: &str) -> String {
        self.cells(name, unit, |original, ours| original / ours)
    }

    /// The row of a table of rates, where more is better.
    pub fn rates(&self, name: &str, unit: &str) -> String {
        self.cells(name, unit, |original, ours| ours / original)
    }

    fn cells(&self, name: &str, unit: &str, ratio: impl Fn(f64, f64) -> f64) -> String {
        let ratio = match (median(&self.original), median(&self.ours)) {
            (Some(original), Some(ours)) if original > 0.0 && ours > 0.0 => {
                format!("{:.2}", ratio(original, ours))
            }
            _ => "–".to_owned(),
        };
        let original = cell(&self.original, &self.failures[0]);
        let ours = cell(&self.ours, &self.failures[1]);
        format!("| {name} | {unit} | {original} | {ours} | {ratio} |")
    }
}

/// Which to measure first in a round, and which then: 0 is the original, 1 is
/// ours.
pub fn order(round: usize) -> [usize; 2] {
    match round % 2 {
        0 => [0, 1],
        _ => [1, 0],
    }
}

/// Which library that is.
pub fn library(which: usize, bench: &Bench) -> &Library {
    match which {
        0 => &Library::Original,
        _ => &bench.ours,
    }
}

fn cell(list: &[f64], failures: &Failures) -> String {
    let Some(middle) = median(list) else {
        return match failures.count {
            0 => "not measured".to_owned(),
            _ => format!("fails: {}", failures.last),
        };
    };
    let least = list.iter().copied().fold(f64::INFINITY, f64::min);
    let most = list.iter().copied().fold(0.0, f64::max);
    let figures = format!("{} ({} to {})", number(middle), number(least), number(most));
    match failures.count {
        0 => figures,
        count => format!("{figures}; {count} of {} failed", count + list.len()),
    }
}

/// Three digits are enough for what varies by percents.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn median(list: &[f64]) -> Option<f64> {
    let mut sorted = list.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted
        .get(sorted.len() / 2 - 1)
        .map(|lower| (lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_row_shows_medians_spread_and_ratio() {
        let figures = Figures {
            original: vec![100.0, 300.0, 200.0],
            ours: vec![50.0],
            ..Figures::default()
        };
        assert_eq!(
            figures.row("x", "µs"),
            "| x | µs | 200 (100 to 300) | 50.0 (50.0 to 50.0) | 4.00 |"
        );
    }

    #[test]
    fn a_library_that_always_fails_has_no_ratio() {
        let mut figures = Figures::default();
        figures.take(0, Err(anyhow!("ENOMEM")));
        figures.take(1, Ok(1.0));
        let row = figures.row("x", "µs");
        assert!(
            row.contains("fails: ENOMEM") && row.ends_with("| – |"),
            "{row}"
        );
    }

    #[test]
    fn a_row_tells_how_often_a_library_failed() {
        let mut figures = Figures::default();
        for figure in [Ok(2.0), Err(anyhow!("hangs")), Ok(2.0)] {
            figures.take(0, figure);
        }
        figures.take(1, Ok(1.0));
        let row = figures.row("x", "µs");
        assert!(
            row.contains("| 2.00 (2.00 to 2.00); 1 of 3 failed |") && row.ends_with("| 2.00 |"),
            "{row}"
        );
    }
}
