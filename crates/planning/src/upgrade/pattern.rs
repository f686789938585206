//! The patterns by which `group_mappings` names roles: the part of Python's regular expressions that names of
//! roles need. A pattern matches from the begin of a role and need not reach its end, as in the original.
//!
//! The match keeps the set of all positions that are reached, so that no pattern takes long.

use std::collections::BTreeSet;

/// Longest pattern, in bytes.
const PATTERN_MAX_BYTES: usize = 256;
/// Deepest nesting of parentheses.
const DEPTH_MAX: usize = 16;

/// A pattern that matches roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RolePattern(Node);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Any,
    End,
    /// One byte of these, or of all others.
    Bytes(BTreeSet<u8>, bool),
    All(Vec<Node>),
    OneOf(Vec<Node>),
    /// At least `0` or `1` times, and at most once or any number of times.
    Repeat(Box<Node>, bool, bool),
}

impl RolePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Returns what is not understood.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_MAX_BYTES {
            return Err(format!("the pattern is longer than {PATTERN_MAX_BYTES} bytes"));
        }
        if !text.is_ascii() {
            return Err("roles have ASCII letters only".into());
        }
        // The match begins at the begin of the role anyhow.
        let mut reader = Reader { rest: text.strip_prefix('^').unwrap_or(text).as_bytes(), depth: 0 };
        let node = reader.one_of()?;
        match reader.rest {
            [] => Ok(Self(node)),
            _ => Err("a parenthesis is closed that was not opened".into()),
        }
    }

    /// True if the role begins with what the pattern describes.
    pub(super) fn matches(&self, role: &str) -> bool {
        !self.0.ends(role.as_bytes(), &BTreeSet::from([0])).is_empty()
    }
}

impl Node {
    /// Returns the positions at which a match ends that begins at one of these.
    fn ends(&self, text: &[u8], begins: &BTreeSet<usize>) -> BTreeSet<usize> {
        let next = |fits: &dyn Fn(u8) -> bool| {
            let fits = |at: &&usize| text.get(**at).is_some_and(|byte| fits(*byte));
            begins.iter().filter(fits).map(|at| at + 1).collect()
        };
        match self {
            Self::Any => next(&|_| true),
            Self::Bytes(bytes, is_in) => next(&|byte| bytes.contains(&byte) == *is_in),
            Self::End => begins.iter().copied().filter(|at| *at == text.len()).collect(),
            Self::All(nodes) => nodes.iter().fold(begins.clone(), |at, node| node.ends(text, &at)),
            Self::OneOf(nodes) => nodes.iter().flat_map(|node| node.ends(text, begins)).collect(),
            Self::Repeat(node, may_be_absent, may_repeat) => {
                let mut reached = node.ends(text, begins);
                let mut new = reached.clone();
                while *may_repeat && !new.is_empty() {
                    new = node.ends(text, &new).difference(&reached).copied().collect();
                    reached.extend(&new);
                }
                reached.extend(begins.iter().filter(|_| *may_be_absent));
                reached
            }
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl Reader<'_> {
    fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Takes the next byte if it is this one.
    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            self.take();
        }
        is_next
    }

    fn one_of(&mut self) -> Result<Node, String> {
        let mut nodes = vec![self.all()?];
        while self.skip(b'|') {
            nodes.push(self.all()?);
        }
        Ok(Node::OneOf(nodes))
    }

    fn all(&mut self) -> Result<Node, String> {
        let mut nodes = Vec::new();
        while !matches!(self.rest.first(), None | Some(b'|' | b')')) {
            let node = self.one()?;
            let (may_be_absent, may_repeat) = match self.rest.first() {
                Some(b'*') => (true, true),
                Some(b'+') => (false, true),
                Some(b'?') => (true, false),
                _ => {
                    nodes.push(node);
                    continue;
                }
            };
            self.take();
            // How much a repetition takes first does not change whether the whole matches.
            if self.skip(b'?') && matches!(self.rest.first(), Some(b'*' | b'+' | b'?')) {
                return Err("a repetition is repeated".into());
            }
            nodes.push(Node::Repeat(Box::new(node), may_be_absent, may_repeat));
        }
        Ok(Node::All(nodes))
    }

    fn one(&mut self) -> Result<Node, String> {
        match self.take() {
            Some(b'.') => Ok(Node::Any),
            Some(b'$') => Ok(Node::End),
            Some(b'[') => self.class(),
            Some(b'(') => self.group(),
            Some(b'\\') => self.escape(),
            Some(byte @ (b'*' | b'+' | b'?' | b'{' | b'}' | b'^')) => {
                Err(format!("{:?} is not supported here", char::from(byte)))
            }
            Some(byte) => Ok(Node::Bytes(BTreeSet::from([byte]), true)),
            None => Err("the pattern ends too early".into()),
        }
    }

    fn group(&mut self) -> Result<Node, String> {
        if self.depth == DEPTH_MAX {
            return Err("too many parentheses".into());
        }
        if self.skip(b'?') && !self.skip(b':') {
            return Err("of the groups with (?, only (?: is supported".into());
        }
        self.depth += 1;
        let node = self.one_of()?;
        self.depth -= 1;
        if self.skip(b')') { Ok(node) } else { Err("a parenthesis is not closed".into()) }
    }

    fn escape(&mut self) -> Result<Node, String> {
        match self.take() {
            Some(b'd') => Ok(Node::Bytes((b'0'..=b'9').collect(), true)),
            Some(b'w') => Ok(Node::Bytes((0..128u8).filter(|b| is_word(*b)).collect(), true)),
            Some(byte) if !byte.is_ascii_alphanumeric() => Ok(Node::Bytes(BTreeSet::from([byte]), true)),
            Some(byte) => Err(format!("\"\\{}\" is not supported", char::from(byte))),
            None => Err("the pattern ends with a backslash".into()),
        }
    }

    fn class(&mut self) -> Result<Node, String> {
        let is_in = !self.skip(b'^');
        let mut bytes = BTreeSet::new();
        loop {
            let first = match self.take().ok_or("a bracket is not closed")? {
                b']' if !bytes.is_empty() => return Ok(Node::Bytes(bytes, is_in)),
                b'\\' => {
                    let Node::Bytes(escaped, _) = self.escape()? else { continue };
                    bytes.extend(escaped);
                    continue;
                }
                byte => byte,
            };
            match self.rest {
                [b'-', last, ..] if *last != b']' => {
                    if *last < first {
                        return Err("a range of characters ends before it begins".into());
                    }
                    bytes.extend(first..=*last);
                    self.rest = &self.rest[2..];
                }
                _ => drop(bytes.insert(first)),
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_from_the_begin_as_in_the_original() {
        for (pattern, role, expected) in [
            ("st.*", "stmon", true),
            ("st.*", "st", true),
            ("st.*", "gst", false),
            ("g?cp.*", "cp", true),
            ("g?cp.*", "gcp", true),
            ("g?cp.*", "ggcp", false),
            ("foo", "foobar", true),
            ("foo$", "foobar", false),
            ("^foo$", "foo", true),
            ("fo.*?", "foo", true),
            ("(oc|ocdb)$", "ocdb", true),
            ("(?:a|b)+c", "ababc", true),
            ("[a-cx]+$", "abx", true),
            ("[^a]", "a", false),
            ("[]a]", "]", true),
            ("\\w+\\d", "web1", true),
            ("a\\.b", "a.b", true),
            ("a\\.b", "axb", false),
            ("", "web", true),
            ("a|", "web", true),
        ] {
            let read = RolePattern::read(pattern).unwrap();
            assert_eq!(read.matches(role), expected, "{pattern} {role}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let long = "x".repeat(PATTERN_MAX_BYTES + 1);
        let deep = "(".repeat(DEPTH_MAX + 1) + &")".repeat(DEPTH_MAX + 1);
        for bad in [
            "*", "(", "(a", "a)", "[", "[]", "[b-a]", "a{2}", "(?=a)", "\\b", "\\", "a**", "a^", "é", &long,
            &deep,
        ] {
            RolePattern::read(bad).unwrap_err();
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = RolePattern::read(&("(a*)*".repeat(40) + "b")).unwrap();
        assert!(!pattern.matches(&"a".repeat(63)));
    }
}
