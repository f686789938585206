//! The past: what a question with `--at` reads, and the recordings that it reads from.

pub(super) mod moment;
pub(super) mod question;
pub(super) mod recording;
