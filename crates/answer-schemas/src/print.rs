//! JSON as people read it: what fits stands on one line, and names are in the order of the type.

use serde_json::{Map, Value};

const WIDTH: usize = 110;

/// The names of JSON Schema and OpenAPI that come first, in this order.
const FIRST: [&str; 20] = [
    "$schema",
    "openapi",
    "info",
    "servers",
    "security",
    "title",
    "operationId",
    "summary",
    "name",
    "in",
    "description",
    "parameters",
    "requestBody",
    "responses",
    "$ref",
    "type",
    "enum",
    "properties",
    "required",
    "additionalProperties",
];

/// Returns the text of a file.
pub(crate) fn text(value: &Value) -> String {
    let mut text = String::new();
    Printer { text: &mut text }.value(value, 0, 0, &FIRST);
    text.push('\n');
    text
}

struct Printer<'a> {
    text: &'a mut String,
}

impl Printer<'_> {
    /// Adds a value that stands in this depth. So many columns of its line are taken. `order` has the names that come
    /// first.
    fn value(&mut self, value: &Value, depth: usize, taken: usize, order: &[&str]) {
        let line = in_line(value, order);
        let fits = taken + line.len() < WIDTH;
        match value {
            Value::Object(fields) if !fits && !fields.is_empty() => {
                self.text.push('{');
                for (index, (name, field)) in sorted(fields, order).into_iter().enumerate() {
                    let begin = format!("{}: ", Value::from(name));
                    self.begin(&begin, index, depth + 1);
                    let taken = 2 * (depth + 1) + begin.len();
                    self.value(field, depth + 1, taken, &order_of(fields, name));
                }
                self.end('}', depth);
            }
            Value::Array(values) if !fits && !values.is_empty() => {
                self.text.push('[');
                for (index, value) in values.iter().enumerate() {
                    self.begin("", index, depth + 1);
                    self.value(value, depth + 1, 2 * (depth + 1), &FIRST);
                }
                self.end(']', depth);
            }
            _ => self.text.push_str(&line),
        }
    }

    fn begin(&mut self, begin: &str, index: usize, depth: usize) {
        if index > 0 {
            self.text.push(',');
        }
        self.text.push('\n');
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(begin);
    }

    fn end(&mut self, end: char, depth: usize) {
        self.text.push('\n');
        self.text.push_str(&"  ".repeat(depth));
        self.text.push(end);
    }
}

fn in_line(value: &Value, order: &[&str]) -> String {
    match value {
        Value::Object(fields) => {
            let field = |(name, field): (&str, &Value)| {
                format!("{}: {}", Value::from(name), in_line(field, &order_of(fields, name)))
            };
            let fields: Vec<String> = sorted(fields, order).into_iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| in_line(value, &FIRST)).collect();
            format!("[{}]", values.join(", "))
        }
        value => value.to_string(),
    }
}

/// Returns which names come first in a field: those of properties are in the order of `required` beside them, which is
/// that of the type.
fn order_of<'a>(beside: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    match beside.get("required").and_then(Value::as_array) {
        Some(required) if name == "properties" => required.iter().filter_map(Value::as_str).collect(),
        _ => FIRST.to_vec(),
    }
}

fn sorted<'a>(fields: &'a Map<String, Value>, order: &[&str]) -> Vec<(&'a str, &'a Value)> {
    let mut fields: Vec<(&str, &Value)> = fields.iter().map(|(name, field)| (name.as_str(), field)).collect();
    fields.sort_by_key(|(name, _)| order.iter().position(|first| first == name).unwrap_or(order.len()));
    fields
}
