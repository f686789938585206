//! Helpers to read files that people write: the line of an error, the nearest known name.

/// Returns the number of the first line that contains `part`, counted from 1.
pub(super) fn line_of(text: &str, part: &str) -> Option<usize> {
    text.lines().position(|line| line.contains(part)).map(|at| at + 1)
}

/// Returns the number of the line at a byte offset, counted from 1.
pub fn line_at(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

/// Rewrites serde's message "unknown field `a`, expected one of `b`, `c`" so that it names the
/// nearest known field. Returns other messages unchanged, without surrounding white space.
pub fn with_nearest(message: &str) -> String {
    let message = message.trim();
    let Some(rest) = message.strip_prefix("unknown field ") else { return message.to_owned() };
    let names: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let Some((unknown, known)) = names.split_first() else { return message.to_owned() };
    match nearest(unknown, known.iter().copied()) {
        Some(nearest) => format!("unknown setting `{unknown}`; did you mean `{nearest}`?"),
        None => format!("unknown setting `{unknown}`"),
    }
}

/// Returns the known name that is most similar to the unknown one.
pub fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.min_by_key(|name| distance(unknown, name))
}

/// Returns the Levenshtein distance, counted in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
