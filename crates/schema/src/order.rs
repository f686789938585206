//! The order of instructions.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The order of instructions: by epoch, then by the revision of `/current_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstructionOrder {
    /// The epoch of the store when the instruction was read.
    pub epoch: u64,
    /// The revision at which `/current_version` was written.
    pub revision: i64,
}

impl fmt::Display for InstructionOrder {
    /// Writes the order so that texts sort as orders do. It names the rollout of the instruction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}-{:019}", self.epoch, self.revision)
    }
}

impl InstructionOrder {
    /// Reads an order as [`fmt::Display`] writes it; `None` for any other text.
    pub fn read(text: &str) -> Option<Self> {
        let (epoch, revision) = text.split_once('-')?;
        // Compared without writing it: hosts read the names of many tickets.
        let is_as_written = |number: &str, width: usize| {
            let is_padded = number.len() == width || number.len() > width && !number.starts_with('0');
            is_padded && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_as_written(epoch, 10) || !is_as_written(revision, 19) {
            return None;
        }
        Some(Self { epoch: epoch.parse().ok()?, revision: revision.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_order_reads_back_and_sorts_as_orders_do() {
        let order = |epoch, revision| InstructionOrder { epoch, revision };
        let orders =
            [order(0, 0), order(0, 9), order(0, 10), order(1, 2), order(2, i64::MAX), order(u64::MAX, 1)];
        let texts = orders.map(|order| order.to_string());
        assert!(texts[..5].is_sorted(), "{texts:?}");
        assert_eq!(orders.map(Some), texts.map(|text| InstructionOrder::read(&text)));
        for bad in [
            "",
            "1-2",
            "00000000000-0000000000000000001",
            "0000000000-9999999999999999999",
            "0000000000-000000000000000001a",
            "-1--1",
            "0000000000-+000000000000000001",
        ] {
            assert_eq!(InstructionOrder::read(bad), None, "{bad}");
        }
    }
}
