//! Following keys: `mirror` keeps a few single keys, `feed` sends a range to its consumer, `collect` makes lists and
//! changes of what a feed sends, and `assembly` puts several feeds together into one snapshot of the store.

mod assembly;
mod collect;
mod feed;
mod mirror;
mod options;

pub use assembly::{Advance, Assembly};
pub use collect::{Collected, Collector};
pub use feed::{Change, Feed, FeedEvent};
pub use mirror::{Mirror, MirrorOptions, Snapshot};
pub use options::{FeedBegin, FeedOptions};
