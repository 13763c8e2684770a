//! The columns of the test matrix: which kernels, each with which userland and
//! so with which version of the original, and which suites run on all of them.
//!
//! `cargo xtask test` runs every suite in the first column and those of
//! [`SUITES`] in the last one as well, without [`ON_DEMAND`]; with `--matrix` it
//! runs in every column what it has [`Column::suites`] for. Their results are in
//! `docs/matrix.md`, which `--matrix` writes, and any other run with `--record`.

use anyhow::Result;

use super::Name;
use crate::place::Place;
use crate::vm::kernel::Release;
use crate::vm::roots;

/// The suites whose results depend on kernel and userland.
pub const SUITES: [Name; 5] = [
    Name::Conformance,
    Name::Clients,
    Name::Interop,
    Name::Commands,
    Name::Preload,
];

/// Of those, what takes too long to be run twice whenever everything is tested.
pub const ON_DEMAND: [Name; 1] = [Name::Preload];

/// Of those, what says how ours and the original get on: on an old kernel with the
/// original of a new userland as well, and the other way round.
const CROSSED: [Name; 1] = [Name::Interop];

/// The package whose version is that of the original and its programs.
pub const ORIGINAL: &str = "rdmacm-utils";

/// One kernel and userland.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    kernel: Release,
    /// A Debian suite; without, the machine's own root.
    suite: Option<&'static str>,
    /// What `--matrix` runs in it.
    pub suites: &'static [Name],
}

impl Column {
    /// All of them, oldest kernel first.
    pub const ALL: [Self; 5] = [
        Self::new(Release::V6_1, None, &SUITES),
        Self::new(Release::V6_1, Some("sid"), &CROSSED),
        Self::new(Release::V6_12, None, &SUITES),
        Self::new(Release::V7_3, None, &CROSSED),
        Self::new(Release::V7_3, Some("sid"), &SUITES),
    ];

    /// The one in which everything runs.
    pub const FIRST: Self = Self::ALL[0];

    /// The newest.
    pub const LAST: Self = Self::ALL[Self::ALL.len() - 1];

    const fn new(kernel: Release, suite: Option<&'static str>, suites: &'static [Name]) -> Self {
        Self {
            kernel,
            suite,
            suites,
        }
    }

    /// Makes its machine ready: fetches the kernel, makes the root.
    pub fn place(self) -> Result<Place> {
        Place::machine(self.kernel, self.suite.map(roots::get).transpose()?)
    }

    /// What the closing table calls it.
    pub fn name(self) -> String {
        match self.suite {
            Some(suite) => format!("{}, {suite}", self.kernel),
            None => self.kernel.to_string(),
        }
    }

    /// Its name with the version of the original in it.
    pub fn heading(self) -> Result<String> {
        let root = self.suite.map(roots::get).transpose()?;
        let original = roots::version(root.as_deref(), ORIGINAL)?;
        Ok(format!("{} (original {original})", self.name()))
    }

    /// Whether it is the one with this kernel.
    pub fn has(self, kernel: Release) -> bool {
        self.kernel == kernel
    }
}
