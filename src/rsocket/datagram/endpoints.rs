//! The endpoints of a datagram socket, one per local address. Each keeps its
//! place, by which others name it, until it is removed.

use std::net::SocketAddr;

use super::endpoint::Endpoint;

/// See the module.
#[derive(Debug, Default)]
pub struct Endpoints(Vec<Option<Endpoint>>);

impl Endpoints {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter().flatten()
    }

    /// All of them, with their places.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Endpoint)> {
        let places = self.0.iter_mut().enumerate();
        places.filter_map(|(place, endpoint)| Some((place, endpoint.as_mut()?)))
    }

    /// The place of the endpoint of the local address `source`, if there is
    /// one.
    pub fn find(&self, source: SocketAddr) -> Option<usize> {
        self.position(|endpoint| endpoint.source() == source)
    }

    /// The place of the first for which `wanted` says so.
    pub fn position(&self, wanted: impl Fn(&Endpoint) -> bool) -> Option<usize> {
        self.0
            .iter()
            .position(|endpoint| endpoint.as_ref().is_some_and(&wanted))
    }

    /// The endpoint at a place.
    pub fn get(&self, place: usize) -> Option<&Endpoint> {
        self.0.get(place)?.as_ref()
    }

    /// As [`Endpoints::get`].
    pub fn get_mut(&mut self, place: usize) -> Option<&mut Endpoint> {
        self.0.get_mut(place)?.as_mut()
    }

    /// Adds one and returns its place.
    pub fn add(&mut self, endpoint: Endpoint) -> usize {
        let free = self.0.iter().position(Option::is_none);
        let place = free.unwrap_or(self.0.len());
        match self.0.get_mut(place) {
            Some(free) => *free = Some(endpoint),
            None => self.0.push(Some(endpoint)),
        }
        place
    }

    /// Takes out the one at a place.
    pub fn remove(&mut self, place: usize) -> Option<Endpoint> {
        self.0.get_mut(place)?.take()
    }
}
