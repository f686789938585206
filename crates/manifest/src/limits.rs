//! What a manifest may hold at most. The limits end the work on a hostile file early, and keep a spec small enough
//! for the store.

/// Longest text of all files together, in bytes.
pub const TEXT_MAX_BYTES: usize = 1024 * 1024;
/// Most services of one manifest.
pub const SERVICES_MAX: usize = 500;
/// Deepest nesting of lists and mappings.
pub const DEPTH_MAX: usize = 32;
/// Most aliases (`*name`) of one file.
pub const ALIASES_MAX: usize = 5_000;
/// Most values after aliases and `extends` were replaced by what they stand for.
pub const NODES_MAX: usize = 200_000;
/// Longest text of these values together, in bytes.
pub const EXPANDED_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Deepest nesting of variables, as in `${A:-${B:-c}}`.
pub const VARIABLE_DEPTH_MAX: usize = 16;
/// Longest chain of services that extend each other.
pub const EXTENDS_MAX: usize = 16;
/// Longest canonical form of one service, in bytes. The store keeps it in one key.
pub const SPEC_MAX_BYTES: usize = 64 * 1024;
/// Most mistakes that are reported.
pub const MISTAKES_MAX: usize = 200;
