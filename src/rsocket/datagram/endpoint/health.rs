//! How a datagram queue pair is: whether it works, has failed and is renewed, or
//! is gone with its device.

use crate::cm::transition;
use crate::error::{Error, Result};

use super::Endpoint;

/// How the queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Works,
    /// A work request has failed, as without a network, and all others fail
    /// with it. When the last one has, the queue pair is renewed.
    Failed,
    /// It cannot be renewed: the device is gone.
    Gone,
}

impl Endpoint {
    /// Whether its device is gone, and it with that.
    pub fn is_gone(&self) -> bool {
        self.health == Health::Gone
    }

    /// Whether it is gone and the program is to be told; `true` once.
    pub fn take_loss(&mut self) -> bool {
        self.is_gone() && !std::mem::replace(&mut self.told, true)
    }

    /// Whether `error` is what a device says that is being removed, of which it
    /// then takes note.
    pub(super) fn is_loss(&mut self, error: &Error) -> bool {
        let lost = matches!(error.errno(), libc::EIO | libc::ENODEV);
        if lost {
            log::warn!("{}: no datagrams any more: {error}", self.id.as_ref());
            self.lose();
        }
        lost
    }

    /// Takes note that its device is gone.
    pub fn lose(&mut self) {
        self.health = Health::Gone;
    }

    /// Whether datagrams can be sent by the queue pair.
    pub fn works(&self) -> bool {
        self.health == Health::Works
    }

    /// Takes note that a work request has failed, and sees to it that all fail.
    pub(super) fn fail(&mut self) {
        if self.works() {
            self.health = Health::Failed;
            transition::flush(&self.id);
        }
    }

    /// Makes the queue pair work again once nothing is left in it. Its number
    /// stays what peers know.
    pub(super) fn recover(&mut self) {
        if self.health != Health::Failed || self.posted > 0 || !self.is_idle() {
            return;
        }
        if let Err(error) = self.renew() {
            log::warn!("{}: no datagrams any more: {error}", self.id.as_ref());
            self.lose();
        }
    }

    fn renew(&mut self) -> Result<()> {
        transition::renew(&self.id)?;
        self.health = Health::Works;
        for slot in std::mem::take(&mut self.idle) {
            self.release(slot)?;
        }
        log::info!("{}: sends datagrams again", self.id.as_ref());
        Ok(())
    }
}
