//! Who may log in, and what their channels get to work with.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use srpt::executor::{Executor, LoginInfo, Target};
use srpt::wire::RejectReason;

use crate::disks::Disks;
use crate::executor::DiskExecutor;
use crate::options::Network;
use crate::output::say;
use crate::sessions::Sessions;
use crate::stats::Stats;

/// What all channels share.
#[derive(Debug)]
pub struct Shared {
    /// The disks.
    pub disks: Disks,
    /// The sessions.
    pub sessions: Sessions,
    /// The counters, if commands are counted.
    pub stats: Option<Stats>,
}

/// Serves the disks to those who are allowed.
pub struct DiskTarget {
    /// What all channels share.
    pub shared: Arc<Shared>,
    /// Who may log in; everybody if empty.
    pub allowed: Vec<Network>,
}

impl Target for DiskTarget {
    fn admit(&self, login: &LoginInfo) -> Result<(), RejectReason> {
        let address = login.peer.ip();
        let allowed =
            self.allowed.is_empty() || self.allowed.iter().any(|network| network.contains(address));
        if !allowed {
            self.refused(login, &"not an allowed address");
            return Err(RejectReason::ChannelLimitReached);
        }
        Ok(())
    }

    fn executor(&self, login: &LoginInfo) -> io::Result<Box<dyn Executor>> {
        let Some(session) = self.shared.sessions.join(login.session, login.initiator) else {
            let error = io::Error::new(io::ErrorKind::QuotaExceeded, "too many sessions");
            return Err(error);
        };
        let executor = DiskExecutor::new(Arc::clone(&self.shared), session)?;
        Ok(Box::new(executor))
    }

    fn refused(&self, login: &LoginInfo, why: &dyn Display) {
        say(&format!("refused {}: {why}", who(login)));
    }

    fn logged_in(&self, login: &LoginInfo) {
        say(&line("login", login));
    }

    fn logged_out(&self, login: &LoginInfo) {
        say(&line("logout", login));
    }
}

/// The line about a channel that has come or gone.
fn line(what: &str, login: &LoginInfo) -> String {
    format!(
        "{what} {} session {} channel {}",
        who(login),
        login.session,
        login.channel
    )
}

fn who(login: &LoginInfo) -> String {
    format!("{} initiator {}", login.peer.ip(), login.initiator)
}
