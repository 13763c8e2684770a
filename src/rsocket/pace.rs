//! Whether a program sends so many small pieces that it pays to gather them
//! into fewer messages.

/// Sends within one or two ticks of the coarse clock, which are a few
/// milliseconds each, that make a stream of them.
const DENSE: u32 = 24;

/// Sends at a time that are counted at once while they are few, which saves
/// reading the clock.
const FEW: u32 = 8;

/// How densely a program sends.
#[derive(Debug, Default)]
pub struct Pace {
    tick: i64,
    count: u32,
}

impl Pace {
    /// Notes a send; returns whether it is one of many.
    pub fn note_send(&mut self) -> bool {
        self.note_send_at(coarse_tick)
    }

    /// Notes a send if it is one of a few; returns whether it did.
    pub fn note_one_of_few(&mut self) -> bool {
        let few = self.count < DENSE && self.count % FEW != FEW - 1;
        self.count += u32::from(few);
        few
    }

    fn note_send_at(&mut self, tick: impl FnOnce() -> i64) -> bool {
        if self.note_one_of_few() {
            return false;
        }
        let tick = tick();
        if tick != self.tick {
            // What filled the tick before counts half.
            let next = tick == self.tick.wrapping_add(1);
            self.count = if next { self.count / 2 } else { 0 };
            self.tick = tick;
        }
        self.count = self.count.saturating_add(1);
        self.count > DENSE
    }

    /// Notes that the program waits for an answer: what it sends next is
    /// probably waited for as well.
    pub fn note_receive(&mut self) {
        self.count = 0;
    }
}

/// The coarse clock in units of 4 ms: it can be read without a system call
/// everywhere, also where the fine one cannot.
fn coarse_tick() -> i64 {
    const NANOSECONDS: i64 = 4_000_000;
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec
        .wrapping_mul(1_000_000_000 / NANOSECONDS)
        .wrapping_add(now.tv_nsec / NANOSECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_many_sends_in_a_short_time_are_dense() {
        let mut pace = Pace::default();
        assert!((0..10).all(|tick| !(0..DENSE / 2).any(|_| pace.note_send_at(|| tick))));
        assert!((0..=DENSE + FEW).any(|_| pace.note_send_at(|| 20)));
        assert!(!pace.note_send_at(|| 22), "after a pause");
    }

    #[test]
    fn who_waits_for_answers_does_not_send_densely() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            assert!(!pace.note_send_at(|| 7));
            pace.note_receive();
        }
    }
}
