//! Pieces of work that several machines take, each when it is done with the one
//! before: a folder that all of them see, in which a piece is a file. Who takes it
//! moves it to a folder of its own, which one alone succeeds in.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

use crate::workspace;

/// Where the pieces are that nobody has taken.
const LEFT: &str = "left";

/// The folder; removed when this is dropped.
pub struct Queue(PathBuf);

impl Queue {
    /// A queue of `pieces`, which are taken in this order.
    pub fn new(pieces: &[String]) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let queue = Self(workspace::target("queues")?.join(name));
        let left = workspace::create(queue.0.join(LEFT))?;
        for (number, piece) in pieces.iter().enumerate() {
            fs::write(left.join(format!("{number:04}")), piece)?;
        }
        Ok(queue)
    }

    /// The folder, which a machine must be able to write to.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(names(&self.0.join(LEFT))?.is_empty())
    }

    /// What one of those that take pieces sees of it, the `number`th.
    pub fn taker(&self, number: usize) -> Result<Taker> {
        workspace::create(self.0.join(number.to_string())).map(Taker)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What is left of it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One that takes pieces: the folder of those it has taken.
pub struct Taker(PathBuf);

/// A piece that was taken.
pub struct Piece {
    file: String,
    /// What it is.
    pub name: String,
}

impl Taker {
    /// The taker with this folder.
    pub fn of(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Takes the next piece, if there is any.
    pub fn take(&self) -> Result<Option<String>> {
        let left = self.0.with_file_name(LEFT);
        for name in names(&left)? {
            let taken = self.0.join(&name);
            match fs::rename(left.join(&name), &taken) {
                Ok(()) => return Ok(Some(fs::read_to_string(taken)?)),
                // Another was faster.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).context("cannot take a piece of work"),
            }
        }
        Ok(None)
    }

    /// The pieces that it has taken.
    pub fn taken(&self) -> Result<Vec<Piece>> {
        let piece = |file: String| {
            let name = fs::read_to_string(self.0.join(&file))?;
            Ok(Piece { file, name })
        };
        names(&self.0)?.into_iter().map(piece).collect()
    }

    /// Gives a piece back, for whoever takes one next.
    pub fn give_back(&self, piece: &Piece) -> Result<()> {
        let left = self.0.with_file_name(LEFT);
        fs::rename(self.0.join(&piece.file), left.join(&piece.file))?;
        Ok(())
    }
}

/// The names in a folder, in order.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;

    fn pieces(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("piece {number}")).collect()
    }

    #[test]
    fn each_piece_is_taken_once() {
        let pieces = pieces(200);
        let queue = Queue::new(&pieces).unwrap();
        let take_all = |number| {
            let taker = queue.taker(number).unwrap();
            std::iter::from_fn(move || taker.take().unwrap()).collect::<Vec<_>>()
        };
        let taken: Vec<_> = thread::scope(|scope| {
            let takers: Vec<_> = (1..=3)
                .map(|number| scope.spawn(move || take_all(number)))
                .collect();
            takers
                .into_iter()
                .flat_map(|taker| taker.join().unwrap())
                .collect()
        });
        assert_eq!(taken.len(), pieces.len());
        let taken: BTreeSet<_> = taken.into_iter().collect();
        assert_eq!(taken, pieces.into_iter().collect());
    }

    #[test]
    fn a_piece_that_was_given_back_is_the_next() {
        let queue = Queue::new(&pieces(3)).unwrap();
        let [first, second] = [1, 2].map(|number| queue.taker(number).unwrap());
        assert_eq!(first.take().unwrap().unwrap(), "piece 0");
        assert_eq!(second.take().unwrap().unwrap(), "piece 1");
        let taken = first.taken().unwrap();
        assert_eq!(taken.len(), 1);
        first.give_back(&taken[0]).unwrap();
        assert!(first.taken().unwrap().is_empty());
        assert_eq!(second.take().unwrap().unwrap(), "piece 0");
        assert!(!queue.is_empty().unwrap());
        assert_eq!(first.take().unwrap().unwrap(), "piece 2");
        assert!(queue.is_empty().unwrap());
        assert_eq!(second.take().unwrap(), None);
    }

    #[test]
    fn its_folder_goes_with_it() {
        let queue = Queue::new(&pieces(1)).unwrap();
        let folder = queue.folder().to_path_buf();
        assert!(folder.is_dir());
        drop(queue);
        assert!(!folder.exists());
    }
}
