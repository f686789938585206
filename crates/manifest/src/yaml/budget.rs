//! A bound on the size of what a manifest expands to: aliases, variables and `extends` repeat parts of it, and a few
//! lines can stand for more values than fit into memory.

use super::node::Node;
use crate::limits::{EXPANDED_MAX_BYTES, NODES_MAX};

/// What may still be added.
#[derive(Debug)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

/// The manifest is larger than the limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded;

impl Exceeded {
    /// Says what is wrong.
    pub(crate) fn what(self) -> String {
        let mebibytes = EXPANDED_MAX_BYTES / (1024 * 1024);
        format!("the manifest stands for more than {NODES_MAX} values or {mebibytes} MiB of text")
    }

    /// Says what would be right.
    pub(crate) fn right(self) -> &'static str {
        "use fewer aliases, variables and `extends`, or deploy several groups"
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: NODES_MAX, bytes: EXPANDED_MAX_BYTES }
    }
}

impl Budget {
    /// Pays for one value with this much text.
    pub(crate) fn pay(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.nodes = self.nodes.checked_sub(1).ok_or(Exceeded)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Exceeded)?;
        Ok(())
    }

    /// Pays for a copy of a value, and returns the copy.
    pub(crate) fn copy(&mut self, node: &Node) -> Result<Node, Exceeded> {
        let (nodes, bytes) = node.size();
        self.nodes = self.nodes.checked_sub(nodes).ok_or(Exceeded)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Exceeded)?;
        Ok(node.clone())
    }
}
