//! How models are run.

/// Ways gone through per model: at random, and with few switches of threads at
/// the worst places.
const RUNS: usize = 2000;
const SWITCHES: usize = 3;

/// Runs `model` through many ways in which its threads can overtake one another.
pub(crate) fn explore(model: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(model, RUNS);
    shuttle::check_pct(model, RUNS, SWITCHES);
}
