//! Variables in the values of a document. Keys stay as they are.

use crate::interpolation::expand;
use crate::limits::EXPANDED_MAX_BYTES;
use crate::mistake::{Position, Report};
use crate::yaml::{Budget, Node, Value};
use std::collections::BTreeMap;

/// Replaces the variables in all values below a key.
pub(crate) fn interpolate(
    node: &mut Node,
    path: &str,
    variables: &BTreeMap<String, String>,
    budget: &mut Budget,
    report: &mut Report,
) {
    let mut interpolation = Interpolation { variables, budget, report };
    interpolation.visit(node, path);
}

struct Interpolation<'a> {
    variables: &'a BTreeMap<String, String>,
    budget: &'a mut Budget,
    report: &'a mut Report,
}

impl Interpolation<'_> {
    fn visit(&mut self, node: &mut Node, path: &str) {
        match &mut node.value {
            Value::Null => {}
            Value::Text(text) => self.text(text, node.position, path),
            Value::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.visit(item, &format!("{path}[{index}]"));
                }
            }
            Value::Map(entries) => {
                for (key, entry) in entries {
                    self.visit(&mut entry.node, &format!("{path}.{key}"));
                }
            }
        }
    }

    fn text(&mut self, text: &mut String, position: Position, path: &str) {
        if !text.contains('$') {
            return;
        }
        let expanded = match expand(text, self.variables, EXPANDED_MAX_BYTES) {
            Ok(expanded) => expanded,
            Err(error) => {
                self.report.broken_value(position, path, error.what, error.right);
                return;
            }
        };
        for name in expanded.unset {
            let what = format!("the variable {name} is not set, and counts as empty");
            self.report.warning(position, path, what, format!("set {name}, or write ${{{name}:-default}}"));
        }
        match self.budget.pay(expanded.text.len()) {
            Ok(()) => *text = expanded.text,
            Err(error) => self.report.broken_value(position, path, error.what(), error.right()),
        }
    }
}
