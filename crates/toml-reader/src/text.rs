//! Helpers to read files that people write: the line of an error, the nearest known name.

/// Returns the number of the first line that contains `part`, counted from 1.
pub fn line_of(text: &str, part: &str) -> Option<usize> {
    text.lines().position(|line| line.contains(part)).map(|at| at + 1)
}

/// Returns the number of the line at a byte offset, counted from 1.
pub fn line_at(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

/// Returns the known name that is most similar to the unknown one. `None` if more than a third of
/// the longer name would have to change: such a name was hardly meant.
pub fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.filter_map(|name| {
        let distance = distance(unknown, name);
        (distance <= unknown.len().max(name.len()) / 3).then_some((distance, name))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Returns how many bytes have to be added, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // rows[i][j] is the distance of the first i bytes of a and the first j bytes of b.
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j - 1] + differs).min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_may_have_been_meant_is_suggested() {
        let known = ["role", "group", "host", "state_directory", "key", "cert"];
        for (unknown, expected) in [
            ("rol", Some("role")),
            ("state_dir", None),
            ("state_directry", Some("state_directory")),
            ("cret", Some("cert")),
            ("certs", Some("cert")),
            ("ke", Some("key")),
            ("zzz", None),
            ("nonsense", None),
        ] {
            assert_eq!(nearest(unknown, known.into_iter()), expected, "{unknown}");
        }
    }
}
