//! Doing several things at once, without which and for how long mattering to
//! who asks.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `job` with every task, `at_once` of them at the same time, begun in
/// their order; the results are in that order as well.
pub fn each<T: Sync, R: Send>(tasks: &[T], at_once: usize, job: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else {
                return results;
            };
            results.push((number, job(task)));
        }
    };
    let mut results = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|why| resume_unwind(why)))
            .collect::<Vec<_>>()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_their_tasks() {
        let tasks: Vec<_> = (0..100).collect();
        for at_once in [1, 3, 200] {
            assert_eq!(each(&tasks, at_once, |task| *task), tasks);
        }
        assert!(each(&[(); 0], 2, |()| ()).is_empty());
    }
}
