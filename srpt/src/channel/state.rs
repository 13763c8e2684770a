//! The states of a channel and of a command, and which may follow which.

/// How far a channel has come. It only ever moves on, and may skip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum ChannelState {
    /// The login was accepted, the connection is not established yet.
    #[default]
    Connecting = 0,
    /// Commands are served.
    Live = 1,
    /// One side has asked for the end.
    Disconnecting = 2,
    /// The queue pair is in error, what was posted comes back.
    Draining = 3,
    /// Nothing is under way any more.
    Disconnected = 4,
}

impl ChannelState {
    /// Moves on to `new`, if that is further. Returns whether it was.
    pub fn advance(&mut self, new: Self) -> bool {
        let legal = new > *self;
        if legal {
            *self = new;
        }
        legal
    }
}

/// How far a command or task management request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum CommandState {
    /// Arrived; commands without data to the target are executed in it.
    #[default]
    New = 0,
    /// Its data is on the way to the target.
    NeedData = 1,
    /// Its data is there, it is executed.
    DataIn = 2,
    /// Its response is posted.
    ResponseSent = 3,
    /// It is a task management request.
    Management = 4,
    /// The task management request's response is posted.
    ManagementResponseSent = 5,
    /// Finished for good.
    Done = 6,
}

impl CommandState {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::New,
        Self::NeedData,
        Self::DataIn,
        Self::ResponseSent,
        Self::Management,
        Self::ManagementResponseSent,
        Self::Done,
    ];

    /// Moves to `new` unless done, and returns what it was before.
    pub fn set(&mut self, new: Self) -> Self {
        let old = *self;
        if old != Self::Done {
            *self = new;
        }
        old
    }

    /// Moves from `old` to `new`; nothing if it is not in `old`. Returns
    /// whether it was.
    pub fn test_and_set(&mut self, old: Self, new: Self) -> bool {
        let matches = *self == old && old != Self::Done;
        if matches {
            *self = new;
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: [ChannelState; 5] = [
        ChannelState::Connecting,
        ChannelState::Live,
        ChannelState::Disconnecting,
        ChannelState::Draining,
        ChannelState::Disconnected,
    ];

    #[test]
    fn a_channel_only_moves_on() {
        for (before, old) in CHANNEL.into_iter().enumerate() {
            for (after, new) in CHANNEL.into_iter().enumerate() {
                let mut state = old;
                assert_eq!(state.advance(new), after > before, "{old:?} to {new:?}");
                assert_eq!(state, if after > before { new } else { old });
            }
        }
    }

    #[test]
    fn done_is_final() {
        for old in CommandState::ALL {
            for new in CommandState::ALL {
                let mut state = old;
                assert_eq!(state.set(new), old);
                let done = old == CommandState::Done;
                assert_eq!(state, if done { old } else { new });
            }
        }
    }

    #[test]
    fn a_tested_state_changes_only_if_it_is_the_expected_one() {
        for old in CommandState::ALL {
            for expected in CommandState::ALL {
                let mut state = old;
                let changed = state.test_and_set(expected, CommandState::DataIn);
                assert_eq!(changed, old == expected && old != CommandState::Done);
                assert_eq!(state, if changed { CommandState::DataIn } else { old });
            }
        }
    }
}
