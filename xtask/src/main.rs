//! `cargo xtask …`: everything a person or CI does with this repository.

fn main() {}
