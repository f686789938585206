//! Reads the events of a YAML text.
//!
//! The events are read instead of deserialized values, because a manifest needs what a value loses: the text of a
//! number as it is written, the positions of keys, and the tags `!reset` and `!override`.

use super::budget::{Budget, Exceeded};
use super::node::{Entry, MergeTag, Node, Value};
use crate::limits::{ALIASES_MAX, DEPTH_MAX};
use crate::mistake::{Position, Report};
use schema::names::quoted;
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag, options};
use std::collections::{BTreeMap, HashMap};

/// Reads one document. Returns `None` if the text is no YAML or exceeds a limit; the report says why.
pub(crate) fn load(text: &str, source: usize, budget: &mut Budget, report: &mut Report) -> Option<Node> {
    // The parser stops at the nesting itself, one level later than this loader, which has the better message.
    let options = options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX + 1,
        block_nesting_limit: DEPTH_MAX + 1,
    };
    let parser = Parser::new_from_str_with_options(text, options);
    let mut loader = Loader { parser, source, budget, report, anchors: HashMap::new(), aliases: 0 };
    match loader.document() {
        Ok(node) => Some(node),
        Err(stop) => {
            report.mistake(stop.position, "", stop.what, stop.right);
            None
        }
    }
}

/// Why a file is read no further.
struct Stop {
    position: Position,
    what: String,
    right: String,
}

struct Loader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: usize,
    budget: &'a mut Budget,
    report: &'a mut Report,
    anchors: HashMap<usize, Node>,
    aliases: usize,
}

impl<'a> Loader<'a> {
    fn document(&mut self) -> Result<Node, Stop> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            let position = self.position(&span);
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    let right = "write one document in a file, and give several files";
                    return Err(stop(position, "a second document begins here", right));
                }
                Event::DocumentStart(..) => {
                    let (event, span) = self.next()?;
                    root = Some(self.node(event, &span, 0)?);
                }
                _ => return Err(stop(position, "this is no document", "write a mapping with `services`")),
            }
        }
        // A text with nothing but comments has no document.
        let start = Position { source: self.source, line: 1, column: 1 };
        Ok(root.unwrap_or(Node::new(start, Value::Null)))
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.parser.next_event() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => {
                let marker = error.marker();
                let position =
                    Position { source: self.source, line: marker.line(), column: marker.col() + 1 };
                Err(stop(position, format!("this is no YAML: {}", error.info()), "correct the syntax"))
            }
            None => {
                let position = Position { source: self.source, line: 1, column: 1 };
                Err(stop(position, "the document ends too early", "write a whole document"))
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, Stop> {
        let position = self.position(span);
        if depth > DEPTH_MAX {
            let what = format!("lists and mappings are nested more than {DEPTH_MAX} deep");
            return Err(stop(position, what, "write the values with less nesting"));
        }
        let (anchor, tag, value) = match event {
            Event::Alias(anchor) => return self.alias(anchor, position),
            Event::Scalar(text, style, anchor, tag) => {
                self.pay(text.len(), position)?;
                let is_text = style != ScalarStyle::Plain || tag.as_deref().is_some_and(is_string_tag);
                let is_null = matches!(text.as_ref(), "" | "~" | "null" | "Null" | "NULL") && !is_text;
                let value = if is_null { Value::Null } else { Value::Text(text.into_owned()) };
                (anchor, tag, value)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.pay(0, position)?;
                (anchor, tag, Value::List(self.items(depth)?))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.pay(0, position)?;
                (anchor, tag, Value::Map(self.entries(depth)?))
            }
            _ => return Err(stop(position, "a value is missing", "write a value")),
        };
        let tag = tag.and_then(|tag| self.merge_tag(&tag, position));
        let node = Node { position, tag, value };
        if anchor != 0 {
            // An anchor inside of an anchor keeps its part a second time.
            let kept = self.budget.copy(&node).map_err(|error| exceeded(position, error))?;
            self.anchors.insert(anchor, kept);
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, position: Position) -> Result<Node, Stop> {
        self.aliases += 1;
        if self.aliases > ALIASES_MAX {
            let what = format!("the file has more than {ALIASES_MAX} aliases");
            return Err(stop(position, what, "use fewer aliases"));
        }
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(stop(
                position,
                "the alias stands inside of what it refers to",
                "refer to a value before it",
            ));
        };
        self.budget.copy(node).map_err(|error| exceeded(position, error))
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, &span, depth + 1)?),
            }
        }
    }

    fn entries(&mut self, depth: usize) -> Result<BTreeMap<String, Entry>, Stop> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let is_merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, _) if text.as_ref() == "<<");
            let key = self.node(event, &span, depth + 1)?;
            let (event, span) = self.next()?;
            let node = self.node(event, &span, depth + 1)?;
            let Value::Text(name) = key.value else {
                let what = format!("a key is {}", key.kind());
                self.report.mistake(key.position, "", what, "write a name");
                continue;
            };
            if is_merge {
                merged.push(node);
            } else if let Some(first) = entries.get(&name) {
                let what =
                    format!("the key {} stands twice, first in line {}", quoted(&name), first.position.line);
                self.report.mistake(key.position, "", what, "write each key once");
            } else {
                entries.insert(name, Entry { position: key.position, node });
            }
        }
        for node in merged {
            self.merge(node, &mut entries);
        }
        Ok(entries)
    }

    /// Adds what a merge key brings. Keys of the mapping itself and of earlier merged mappings stay.
    fn merge(&mut self, node: Node, entries: &mut BTreeMap<String, Entry>) {
        match node.value {
            Value::Map(brought) => {
                for (name, entry) in brought {
                    entries.entry(name).or_insert(entry);
                }
            }
            Value::List(nodes) if nodes.iter().all(|node| node.as_map().is_some()) => {
                for node in nodes {
                    self.merge(node, entries);
                }
            }
            Value::Null | Value::Text(_) | Value::List(_) => {
                let right = "write an alias of a mapping, as in `<<: *defaults`, or a list of them";
                self.report.mistake(node.position, "<<", "a merge key needs a mapping", right);
            }
        }
    }

    fn merge_tag(&mut self, tag: &Tag, position: Position) -> Option<MergeTag> {
        match tag.original().as_str() {
            "!reset" => Some(MergeTag::Reset),
            "!override" => Some(MergeTag::Override),
            _ if tag.is_yaml_core_schema() => None,
            other => {
                let what = format!("the tag {} is not known", quoted(other));
                self.report.mistake(position, "", what, "write `!reset`, `!override` or no tag");
                None
            }
        }
    }

    fn pay(&mut self, bytes: usize, position: Position) -> Result<(), Stop> {
        self.budget.pay(bytes).map_err(|error| exceeded(position, error))
    }

    fn position(&self, span: &Span) -> Position {
        Position { source: self.source, line: span.start.line(), column: span.start.col() + 1 }
    }
}

fn is_string_tag(tag: &Tag) -> bool {
    tag.core_suffix() == Some("str")
}

fn stop(position: Position, what: impl Into<String>, right: impl Into<String>) -> Stop {
    Stop { position, what: what.into(), right: right.into() }
}

fn exceeded(position: Position, error: Exceeded) -> Stop {
    stop(position, error.what(), error.right())
}
