//! Versions of etcd in which users can read keys without permission.

/// The first patch of each minor version of etcd 3 in which nested transactions and watches check
/// the permissions of the user. Minor versions before the first entry never got the fix; those
/// after the last entry have it.
const CLOSED: [(u32, u32); 3] = [(5, 33), (6, 14), (7, 1)];

/// Returns a warning about a server of this version, for example `3.5.21`; `None` if the version
/// has the fix. The embedded store reports an old version of etcd and marks it with `+solo`; it
/// causes no warning.
pub fn warning(version: &str) -> Option<String> {
    if version.ends_with("+solo") {
        return None;
    }
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let open = match CLOSED.iter().find(|(closed, _)| *closed == minor) {
        _ if major != 3 => false,
        Some((_, closed)) => patch < *closed,
        None => minor < CLOSED[0].0,
    };
    open.then(|| {
        format!(
            "etcd {version} lets users read by nested transactions and watches what they may not; that ended with 3.5.33, \
             3.6.14 and 3.7.1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_the_floor_on_are_silent() {
        for (version, warns) in [
            ("3.4.23", true),
            ("3.5.0", true),
            ("3.5.32", true),
            ("3.5.33", false),
            ("3.5.33-rc.1", false),
            ("3.6.13", true),
            ("3.6.14", false),
            ("3.7.0", true),
            ("3.7.1+git", false),
            ("3.8.0", false),
            ("0.1.0", false),
            ("4.0.0", false),
            ("", false),
            ("solo", false),
            ("3.4.23+solo", false),
        ] {
            assert_eq!(warning(version).is_some(), warns, "{version}");
        }
    }
}
