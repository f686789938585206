//! Reads files that people write, and says of every mistake where it is and what would be right.

mod document;
mod error;
pub mod text;
mod words;

pub use document::{Document, Mistake, line_of, read};
pub use error::{SettingsError, SettingsErrors};
