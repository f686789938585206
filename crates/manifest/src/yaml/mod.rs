//! A YAML document as a tree of values with positions. Aliases and merge keys are replaced by what they stand for.

mod budget;
mod load;
mod node;

pub(crate) use budget::Budget;
pub(crate) use load::load;
pub(crate) use node::{Entry, MergeTag, Node, Value};
