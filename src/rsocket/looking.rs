//! How long a call looks at its sockets before it sleeps: `polling_time`, and
//! longer where the thread's last waits say that it pays. What is looked at is
//! the business of [`super::wait`] and [`super::poll`].

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::look::{Gauge, Looks, Stretch, Turn};

use super::settings::Defaults;

/// How fast looks at sockets are.
static GAUGE: Gauge = Gauge::new();

thread_local! {
    /// How long this thread looks.
    static STRETCH: Cell<Stretch> = const { Cell::new(Stretch::new()) };
}

/// A wait of the calling thread: it looks for a while (`polling_time`), then
/// sleeps.
pub struct Wait {
    looks: Looks<'static>,
    /// Held while looking for longer than usual.
    turn: Option<Turn>,
    /// What this wait teaches is of use for the next one.
    teaches: bool,
    /// When the first sleep began.
    asleep: Option<Instant>,
}

impl Wait {
    /// For as many sockets, until `deadline`. Looks longer after sleeps that
    /// ended soon.
    pub fn adaptive(sockets: usize, deadline: Option<Instant>) -> Self {
        let usual = Defaults::get().polling_time;
        let stretch = STRETCH.get();
        let time = stretch.time(usual);
        let in_time = |deadline: Instant| deadline.saturating_duration_since(Instant::now()) > time;
        let wanted = time > usual && deadline.is_none_or(in_time);
        let turn = wanted.then(Turn::take).flatten();
        let time = if turn.is_some() { time } else { usual };
        Self {
            turn,
            teaches: !usual.is_zero(),
            ..Self::fixed(time, sockets)
        }
    }

    /// For as many sockets among ordinary descriptors, at which each look
    /// costs a system call.
    pub fn mixed(sockets: usize) -> Self {
        Self::fixed(Defaults::get().polling_time, sockets)
    }

    /// For something that looks will not find.
    pub fn blind() -> Self {
        Self::fixed(Duration::ZERO, 1)
    }

    fn fixed(time: Duration, sockets: usize) -> Self {
        Self {
            looks: GAUGE.looks(time, sockets),
            turn: None,
            teaches: false,
            asleep: None,
        }
    }

    /// Whether there is time for another look.
    pub fn looks_again(&mut self) -> bool {
        self.looks.again()
    }

    /// A look has found something.
    pub fn found(self) {
        if self.turn.is_some() {
            let (after, usual) = (self.looks.spent(), Defaults::get().polling_time);
            learn(|stretch| stretch.found(after, usual));
        }
    }

    /// Looking is over, what follows is a sleep.
    pub fn sleeps(&mut self) {
        self.turn = None;
        self.asleep = self.teaches.then(Instant::now);
    }

    /// A sleep has brought something.
    pub fn woken(self) {
        if let Some(asleep) = self.asleep {
            let (took, usual) = (asleep.elapsed(), Defaults::get().polling_time);
            let looked = self.looks.spent();
            learn(|stretch| stretch.slept(looked, took, usual));
        }
    }
}

fn learn(lesson: impl FnOnce(&mut Stretch)) {
    let mut stretch = STRETCH.get();
    lesson(&mut stretch);
    STRETCH.set(stretch);
}
