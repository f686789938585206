//! Variables in the values of a document. Keys stay as they are.

use crate::interpolation::expand;
use crate::limits::EXPANDED_MAX_BYTES;
use crate::mistake::{Position, Report};
use crate::yaml::{Budget, Node, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Replaces the variables in all values below a key.
pub(crate) fn interpolate(
    node: &mut Node,
    key: &str,
    variables: &BTreeMap<String, String>,
    budget: &mut Budget,
    report: &mut Report,
) {
    let mut interpolation = Interpolation { variables, budget, report };
    interpolation.visit(node, &Path::Start(key));
}

/// The path of a key. Only a mistake or a warning makes a text of it.
enum Path<'a> {
    Start(&'a str),
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

struct Interpolation<'a> {
    variables: &'a BTreeMap<String, String>,
    budget: &'a mut Budget,
    report: &'a mut Report,
}

impl Interpolation<'_> {
    fn visit(&mut self, node: &mut Node, path: &Path<'_>) {
        match &mut node.value {
            Value::Null => {}
            Value::Text(text) => self.text(text, node.position, path),
            Value::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.visit(item, &Path::Item(path, index));
                }
            }
            Value::Map(entries) => {
                for (key, entry) in entries {
                    self.visit(&mut entry.node, &Path::Key(path, key));
                }
            }
        }
    }

    fn text(&mut self, text: &mut String, position: Position, path: &Path<'_>) {
        if !text.contains('$') {
            return;
        }
        let expanded = match expand(text, self.variables, EXPANDED_MAX_BYTES) {
            Ok(expanded) => expanded,
            Err(error) => {
                self.report.broken_value(position, &path.to_string(), error.what, error.right);
                return;
            }
        };
        for name in expanded.unset {
            let what = format!("the variable {name} is not set, and counts as empty");
            let right = format!("set {name}, or write ${{{name}:-default}}");
            self.report.warning(position, path.to_string(), what, right);
        }
        match self.budget.pay(expanded.text.len()) {
            Ok(()) => *text = expanded.text,
            Err(error) => {
                self.report.broken_value(position, &path.to_string(), error.what(), error.right());
            }
        }
    }
}
