//! Setting up: settings, rights, checks of files, and the shell.

pub(super) mod bootstrap;
pub(super) mod completion;
pub(super) mod enroll;
pub(super) mod lint;
