//! How long a thread looks before it sleeps, learnt from its last waits.
//!
//! A sleep that ended soon suggests that a longer look would have spared it:
//! where two sides answer one another and both sleep, it is the other's
//! wake-up that each waits for, and one longer look ends that for both. Whether
//! it is so, only a longer look can tell. Where looking keeps the other side
//! from its processor, or what is waited for simply takes that long, it finds
//! nothing early. So such looks run up a debt, which sleeping pays off, and
//! once it is too large a thread does not look longer than usual until it has
//! paid for a longer look.

use std::time::Duration;

/// How many times the usual time a longer look lasts. It covers the other
/// side's wake-up.
const LONGER: u32 = 32;
/// No look is made to last longer than that.
const LONGEST: Duration = Duration::from_millis(1);
/// What a longer look finds in the first part of so many, it finds early: with the
/// other side's wake-up, but not what comes at such intervals anyway.
const EARLY: u32 = 2;
/// A sleep that took fewer longer looks ended soon.
const SOON: u32 = 2;
/// The debt, in longer looks, that ends them.
const MOST_DEBT: u32 = 4;
/// The part of a longer look that one pays off which finds something early.
const EARNED: u32 = 8;
/// The part of the time slept that is paid off.
const SHARE: u32 = 16;

/// How long a longer look lasts.
fn longer(usual: Duration) -> Duration {
    usual.saturating_mul(LONGER).min(LONGEST).max(usual)
}

/// Whether a thread looks longer than usual before it sleeps, which it does
/// not at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The last sleep ended soon.
    soon: bool,
    debt: Duration,
    /// The debt is too large.
    ruined: bool,
}

impl Stretch {
    /// That of a thread that has not waited yet.
    pub const fn new() -> Self {
        Self {
            soon: false,
            debt: Duration::ZERO,
            ruined: false,
        }
    }

    /// How long the next look lasts where `usual` is usual.
    pub fn time(&self, usual: Duration) -> Duration {
        if self.soon && !self.ruined {
            longer(usual)
        } else {
            usual
        }
    }

    /// A look that was longer than usual has found something after so long.
    pub fn found(&mut self, after: Duration, usual: Duration) {
        if after < longer(usual) / EARLY {
            self.pay(longer(usual) / EARNED, usual);
        } else {
            self.owe(after, usual);
        }
    }

    /// A look that lasted `looked` has found nothing, and the sleep after it
    /// took so long.
    pub fn slept(&mut self, looked: Duration, took: Duration, usual: Duration) {
        self.soon = took < longer(usual).saturating_mul(SOON);
        if looked > usual {
            self.owe(looked, usual);
        }
        self.pay(took / SHARE, usual);
    }

    fn owe(&mut self, time: Duration, usual: Duration) {
        self.debt = self.debt.saturating_add(time);
        self.ruined |= self.debt >= longer(usual).saturating_mul(MOST_DEBT);
    }

    fn pay(&mut self, time: Duration, usual: Duration) {
        self.debt = self.debt.saturating_sub(time);
        self.ruined &= self.debt > longer(usual).saturating_mul(MOST_DEBT - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_micros(10);
    const MOST: Duration = Duration::from_micros(320);
    /// What a sleep adds to what is waited for.
    const WAKE_UP: Duration = Duration::from_micros(100);

    /// Waits on a clock of its own.
    #[derive(Default)]
    struct Waiter {
        stretch: Stretch,
        /// Time spent on looks that were longer than usual and found nothing
        /// early.
        wasted: Duration,
        total: Duration,
        slept: bool,
        sleeps: usize,
    }

    impl Waiter {
        /// Waits for something that comes after `delay`.
        fn wait(&mut self, delay: Duration) {
            let time = self.stretch.time(USUAL);
            assert!(time == USUAL || time == MOST);
            let looked = time.min(delay);
            if time > USUAL && looked >= MOST / EARLY {
                self.wasted += looked;
            }
            self.total += delay;
            self.slept = delay > time;
            if self.slept {
                self.sleeps += 1;
                self.total += WAKE_UP;
                self.stretch.slept(time, delay - time + WAKE_UP, USUAL);
            } else if time > USUAL {
                self.stretch.found(delay, USUAL);
            }
        }
    }

    fn micros(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn answers_that_come_early_are_found_without_sleeping() {
        let mut waiter = Waiter::default();
        for _ in 0..1000 {
            waiter.wait(micros(20));
        }
        assert_eq!(waiter.sleeps, 1);
    }

    /// Numbers below `limit` that look random.
    fn numbers(limit: u64) -> impl FnMut() -> Duration {
        let mut state = 1u64;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            micros((state >> 33) % limit)
        }
    }

    #[test]
    fn two_that_answer_one_another_stop_sleeping_with_any_debt() {
        for debts in [[0, 0], [0, 2560], [3000, 3000]] {
            let mut sides = debts.map(|debt| {
                let mut waiter = Waiter::default();
                waiter.stretch.owe(micros(debt), USUAL);
                waiter
            });
            let mut more = numbers(40);
            for round in 0..3000 {
                // One that sleeps is woken first.
                let asleep = sides[1 - round % 2].slept;
                let woken = if asleep { WAKE_UP } else { Duration::ZERO };
                sides[round % 2].wait(micros(15) + woken + more());
            }
            assert!(!sides[0].slept && !sides[1].slept);
        }
    }

    #[test]
    fn a_long_sleep_ends_longer_looks() {
        let mut waiter = Waiter::default();
        for _ in 0..10 {
            waiter.wait(micros(20));
        }
        assert_eq!(waiter.stretch.time(USUAL), MOST);
        for _ in 0..100 {
            waiter.wait(Duration::from_secs(1));
            assert_eq!(waiter.stretch.time(USUAL), USUAL);
        }
    }

    #[test]
    fn what_looks_waste_is_a_small_part_of_the_time() {
        for delay in [160, 200, 300, 400, 500].map(micros) {
            let mut waiter = Waiter::default();
            for _ in 0..100_000 {
                waiter.wait(delay);
            }
            assert!(waiter.wasted <= MOST * (MOST_DEBT + 1) + waiter.total / SHARE);
            for _ in 0..1000 {
                waiter.wait(micros(20));
            }
            assert!(!waiter.slept, "tried again in the end");
        }
    }

    #[test]
    fn sleeps_that_end_soon_by_chance_do_not_keep_a_thread_looking() {
        let mut waiter = Waiter::default();
        let mut delay = numbers(2000);
        for _ in 0..100_000 {
            waiter.wait(delay());
        }
        assert!(waiter.wasted < waiter.total / 10);
    }

    #[test]
    fn looks_are_lengthened_to_a_limit() {
        let time = |usual| {
            let mut stretch = Stretch::new();
            stretch.slept(usual, usual, usual);
            stretch.time(usual)
        };
        assert_eq!(time(micros(200)), LONGEST);
        assert_eq!(time(LONGEST), LONGEST);
        assert_eq!(time(LONGEST * 2), LONGEST * 2);
        assert_eq!(time(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn no_time_to_look_stays_none() {
        let mut stretch = Stretch::new();
        for took in [Duration::ZERO, Duration::from_nanos(1), USUAL] {
            stretch.slept(Duration::ZERO, took, Duration::ZERO);
            assert_eq!(stretch.time(Duration::ZERO), Duration::ZERO);
        }
    }
}
