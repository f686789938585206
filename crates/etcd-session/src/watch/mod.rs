//! Following keys: `mirror` keeps a few single keys, `feed` sends a range to its consumer, and
//! `collect` makes lists and changes of what a feed sends.

mod collect;
mod feed;
mod mirror;

pub use collect::{Collected, Collector};
pub use feed::{Feed, FeedEvent, FeedOptions};
pub use mirror::{Mirror, MirrorOptions, Snapshot};
