//! Sessions: which channels belong together, and how they reach one another.
//!
//! A session is named by the initiator and the target port. Its channels run
//! on threads of their own; they leave messages for one another here, which is
//! rare and never on the path of a command.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::wire::login::OtherChannels;
use crate::wire::{Lun, PortId};

/// A session's name: initiator and target port.
pub type Nexus = (PortId, PortId);

/// The other channels of a session, as a channel sees them.
pub trait Peers {
    /// Has the other channels abort their commands on a logical unit.
    fn reset(&mut self, lun: Lun);

    /// Whether they are still busy with that.
    fn resetting(&self) -> bool;

    /// Whether this channel's commands may be executed: none of the channels
    /// that the session's first one replaced has any left. Stays true.
    fn may_begin(&self) -> bool;

    /// This channel executes nothing any more.
    fn ended(&mut self);
}

/// A descriptor that is readable after [`Wake::wake`].
#[derive(Debug)]
pub struct Wake(File);

impl Wake {
    /// Makes one that is not readable.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // Fails only when it is readable already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        // Fails only when it is unreadable already.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Held by a channel while it aborts commands for another one.
#[derive(Debug)]
pub struct Ticket(Option<Arc<Member>>);

impl Ticket {
    /// A ticket that nobody waits for.
    pub const fn unclaimed() -> Self {
        Self(None)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(waiting) = self.0.take() {
            waiting.tickets.fetch_sub(1, Ordering::AcqRel);
            waiting.wake.wake();
        }
    }
}

/// What a channel is told by others.
#[derive(Debug)]
pub enum Message {
    /// Disconnect.
    Close,
    /// Log out: end what is under way, tell the initiator, disconnect.
    LogOut,
    /// Abort the commands on a logical unit, and drop the ticket when they are
    /// gone.
    Reset(Lun, Ticket),
}

/// A channel as others see it.
#[derive(Debug)]
pub struct Member {
    /// Number of the session.
    pub session: u64,
    /// Number of the channel.
    pub channel: u64,
    nexus: Nexus,
    wake: Wake,
    mailbox: Mutex<Vec<Message>>,
    /// Tickets that other channels hold for this one.
    tickets: AtomicU64,
    /// Replaced channels that might still have executed something when this one
    /// came.
    replaced: Vec<Weak<Member>>,
    /// Nothing is executed any more.
    ended: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    /// Readable while there are messages, or a ticket came back.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Leaves a message.
    pub fn tell(&self, message: Message) {
        locked(&self.mailbox).push(message);
        self.wake.wake();
    }

    /// As [`Peers::may_begin`].
    pub fn may_begin(&self) -> bool {
        self.waiting_for().next().is_none()
    }

    /// The replaced channels that may still execute something.
    fn waiting_for(&self) -> impl Iterator<Item = &Weak<Self>> {
        self.replaced.iter().filter(|other| {
            other
                .upgrade()
                .is_some_and(|other| !other.ended.load(Ordering::Acquire))
        })
    }

    /// Does something while nobody else gets at the channel or its session.
    #[cfg(test)]
    pub fn while_locked(&self, sessions: &Sessions, action: impl FnOnce()) {
        let _locks = (locked(&sessions.members), locked(&self.mailbox));
        action();
    }

    /// Takes all messages.
    pub fn messages(&self) -> Vec<Message> {
        self.wake.clear();
        mem::take(&mut locked(&self.mailbox))
    }
}

/// All channels, by session.
#[derive(Debug, Default)]
pub struct Sessions {
    members: Mutex<HashMap<Nexus, Vec<Arc<Member>>>>,
    numbers: AtomicU64,
}

impl Sessions {
    /// Enters a channel. With `multi_channel` the session's other channels
    /// stay, else they are told to close, and the new one may begin when they
    /// have ended: a write of theirs must not come after one of its own.
    ///
    /// # Errors
    /// What the system says of a new descriptor.
    pub fn enter(
        self: &Arc<Self>,
        nexus: Nexus,
        multi_channel: bool,
    ) -> io::Result<(Membership, OtherChannels)> {
        let wake = Wake::new()?;
        let mut members = locked(&self.members);
        let channels = members.entry(nexus).or_default();
        let others = match (multi_channel, channels.is_empty()) {
            (true, _) => OtherChannels::Maintained,
            (false, true) => OtherChannels::None,
            (false, false) => OtherChannels::Terminated,
        };
        let channel = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let session = match channels.first() {
            Some(other) if multi_channel => other.session,
            _ => channel,
        };
        // The second channel of a session waits as the first does, and so does
        // who replaces one that still waits.
        let mut replaced: Vec<_> = channels
            .iter()
            .flat_map(|other| other.waiting_for().cloned())
            .collect();
        if !multi_channel {
            for other in channels.drain(..) {
                other.tell(Message::Close);
                replaced.push(Arc::downgrade(&other));
            }
        }
        let member = Arc::new(Member {
            session,
            channel,
            nexus,
            wake,
            mailbox: Mutex::default(),
            tickets: AtomicU64::new(0),
            replaced,
            ended: AtomicBool::new(false),
        });
        channels.push(Arc::clone(&member));
        let sessions = Arc::clone(self);
        Ok((Membership { sessions, member }, others))
    }

    /// Number of channels.
    pub fn channels(&self) -> usize {
        locked(&self.members).values().map(Vec::len).sum()
    }

    /// Number of channels that would stay if [`Sessions::enter`] were called like
    /// this.
    pub fn channels_beside(&self, nexus: Nexus, multi_channel: bool) -> usize {
        let members = locked(&self.members);
        let stays = |other: &Nexus| multi_channel || *other != nexus;
        members
            .iter()
            .filter(|(other, _)| stays(other))
            .map(|(_, channels)| channels.len())
            .sum()
    }

    /// Tells every channel to log out.
    pub fn log_out_all(&self) {
        for member in locked(&self.members).values().flatten() {
            member.tell(Message::LogOut);
        }
    }

    /// Tells every channel to close.
    pub fn close_all(&self) {
        for member in locked(&self.members).values().flatten() {
            member.tell(Message::Close);
        }
    }

    /// Tells every channel of `initiator` to close. Returns how many there
    /// are.
    pub fn close_initiator(&self, initiator: PortId) -> usize {
        let members = locked(&self.members);
        let concerned = members
            .iter()
            .filter(|((of, _), _)| *of == initiator)
            .flat_map(|(_, channels)| channels);
        concerned
            .inspect(|member| member.tell(Message::Close))
            .count()
    }
}

/// A channel's place in its session, until dropped.
#[derive(Debug)]
pub struct Membership {
    sessions: Arc<Sessions>,
    member: Arc<Member>,
}

impl Membership {
    /// The channel as others see it.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Lets those begin that wait for the end of this channel.
    fn end(&self) {
        self.member.ended.store(true, Ordering::Release);
        let members = locked(&self.sessions.members);
        for other in members.get(&self.member.nexus).into_iter().flatten() {
            other.wake.wake();
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut members = locked(&self.sessions.members);
        if let Some(channels) = members.get_mut(&self.member.nexus) {
            channels.retain(|other| !Arc::ptr_eq(other, &self.member));
            if channels.is_empty() {
                members.remove(&self.member.nexus);
            }
        }
        drop(members);
        self.end();
        // Tickets in there are given back.
        drop(self.member.messages());
    }
}

impl Peers for Arc<Membership> {
    fn reset(&mut self, lun: Lun) {
        let members = locked(&self.sessions.members);
        let channels = members.get(&self.member.nexus);
        for other in channels.into_iter().flatten() {
            if !Arc::ptr_eq(other, &self.member) {
                self.member.tickets.fetch_add(1, Ordering::AcqRel);
                let ticket = Ticket(Some(Arc::clone(&self.member)));
                other.tell(Message::Reset(lun, ticket));
            }
        }
    }

    fn resetting(&self) -> bool {
        self.member.tickets.load(Ordering::Acquire) > 0
    }

    fn may_begin(&self) -> bool {
        self.member.may_begin()
    }

    fn ended(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXUS: Nexus = (PortId([1; 16]), PortId([2; 16]));
    const OTHER: Nexus = (PortId([3; 16]), PortId([2; 16]));

    fn is_told_to_close(membership: &Membership) -> bool {
        matches!(membership.member().messages()[..], [Message::Close])
    }

    #[test]
    fn a_login_for_one_channel_ends_the_others_of_its_session_only() {
        let sessions = Arc::new(Sessions::default());
        let enter = |nexus, multi| sessions.enter(nexus, multi).unwrap();
        let (first, none) = enter(NEXUS, false);
        let (second, kept) = enter(NEXUS, true);
        let (stranger, alone) = enter(OTHER, false);
        assert_eq!(none, OtherChannels::None);
        assert_eq!(kept, OtherChannels::Maintained);
        assert_eq!(alone, OtherChannels::None);
        assert_eq!(first.member().session, second.member().session);
        assert_ne!(first.member().session, stranger.member().session);
        assert!(!is_told_to_close(&first));
        assert_eq!(sessions.channels_beside(NEXUS, true), 3);
        assert_eq!(sessions.channels_beside(NEXUS, false), 1);

        let (third, ended) = enter(NEXUS, false);
        assert_eq!(ended, OtherChannels::Terminated);
        assert_ne!(third.member().session, first.member().session);
        assert!(is_told_to_close(&first) && is_told_to_close(&second));
        assert!(!is_told_to_close(&stranger) && !is_told_to_close(&third));
        assert_eq!(sessions.channels(), 2);
    }

    #[test]
    fn a_channel_begins_when_those_that_it_replaces_have_ended() {
        let sessions = Arc::new(Sessions::default());
        let enter = |multi| Arc::new(sessions.enter(NEXUS, multi).unwrap().0);
        let (mut first, second) = (enter(false), enter(true));
        assert!(first.may_begin() && second.may_begin());
        let third = enter(false);
        let fourth = enter(true);
        assert!(!third.may_begin() && !fourth.may_begin());
        first.ended();
        assert!(!third.may_begin());
        // Replaced before it could begin.
        let fifth = enter(false);
        drop(third);
        drop(fourth);
        assert!(!fifth.may_begin(), "the second may still execute something");
        fifth.member().wake().clear();
        drop(second);
        assert!(is_readable(fifth.member().wake()));
        assert!(fifth.may_begin());
        let sixth = enter(true);
        assert!(sixth.may_begin());
        assert!(!sessions.enter(NEXUS, false).unwrap().0.member().may_begin());
    }

    fn is_readable(wake: &Wake) -> bool {
        (&wake.0).read(&mut [0; 8]).is_ok()
    }

    #[test]
    fn a_channel_that_is_gone_is_forgotten() {
        let sessions = Arc::new(Sessions::default());
        let (first, _) = sessions.enter(NEXUS, false).unwrap();
        drop(first);
        assert_eq!(sessions.channels(), 0);
        let (_second, others) = sessions.enter(NEXUS, false).unwrap();
        assert_eq!(others, OtherChannels::None);
        assert_eq!(sessions.close_initiator(NEXUS.0), 1);
        assert_eq!(sessions.close_initiator(OTHER.0), 0);
    }

    #[test]
    fn a_reset_lasts_until_every_other_channel_is_done_or_gone() {
        let sessions = Arc::new(Sessions::default());
        let enter = |multi| Arc::new(sessions.enter(NEXUS, multi).unwrap().0);
        let (mut first, second, third) = (enter(false), enter(true), enter(true));
        first.reset(Lun::default());
        assert!(first.resetting());
        assert!(first.member().messages().is_empty());
        let taken = second.member().messages();
        assert!(matches!(taken[..], [Message::Reset(..)]));
        drop(taken);
        assert!(first.resetting());
        drop(third);
        assert!(!first.resetting());
    }
}
