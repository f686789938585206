//! Names of segments.

use crate::objects::{NameError, ObjectName};
use schema::names::Token;
use std::fmt;

/// What names of segments end with.
const ENDING: &str = ".rec";
/// Digits of a number in a name, so that names are in the order of the numbers.
const DIGITS: usize = 19;

/// One history of the store, without a restoration in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Branch {
    /// Lineage of the store.
    pub lineage: Token,
    /// Epoch of the lineage.
    pub epoch: u64,
    /// Branch of the epoch.
    pub branch: Token,
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.lineage, self.epoch, self.branch)
    }
}

/// Which segment it is. Its text is the path of the file or object:
/// `<lineage>/<epoch>/<branch>/<recorder>/<revision>-<time>.rec`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// History of the store.
    pub branch: Branch,
    pub recorder: Token,
    /// Revision of the keys at its beginning.
    pub revision: i64,
    /// When it was begun, in milliseconds since 1970.
    pub begun: i64,
}

/// A segment of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSegment {
    pub name: SegmentName,
    /// Its length in bytes.
    pub bytes: u64,
}

impl SegmentName {
    /// Reads a path. Returns `None` if it is not that of a segment.
    pub fn read(path: &str) -> Option<Self> {
        let [lineage, epoch, branch, recorder, file] = path.split('/').collect::<Vec<_>>().try_into().ok()?;
        let (revision, begun) = file.strip_suffix(ENDING)?.split_once('-')?;
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let branch = Branch {
            lineage: Token::new(lineage).ok()?,
            epoch: epoch.parse().ok()?,
            branch: Token::new(branch).ok()?,
        };
        let recorder = Token::new(recorder).ok()?;
        let name = Self { branch, recorder, revision: number(revision)?, begun: number(begun)? };
        // Other spellings of the same numbers are no names.
        (name.to_string() == path).then_some(name)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { branch, recorder, revision, begun } = self;
        write!(f, "{branch}/{recorder}/{revision:0DIGITS$}-{begun:0DIGITS$}{ENDING}")
    }
}

/// Returns the name of the object with a segment.
///
/// # Errors
/// Returns an error if a part has a character that no object may have. Stores and recorders give themselves none.
pub fn object_name(name: &SegmentName) -> Result<ObjectName, NameError> {
    name.to_string().parse()
}
