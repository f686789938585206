//! What is known of versions of etcd: in which of them users can read keys without permission, and in which the
//! progress of a watch can be trusted.

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
    let (major, minor, patch) = numbers(version)?;
    let open = match CLOSED.iter().find(|(closed, _)| *closed == minor) {
        _ if major != 3 => false,
        Some((_, closed)) => patch < *closed,
        None => minor < CLOSED[0].0,
    };
    if !open {
        return None;
    }
    Some(format!(
        "etcd {version} lets users read by nested transactions and watches what they may not; that ended with 3.5.33, \
             3.6.14 and 3.7.1"
    ))
}

/// The first patch of each minor version in which a progress notification never overtakes changes: etcd's issue
/// 15220. Minor versions after the last entry have the fix too.
const IN_ORDER: [(u32, u32); 2] = [(4, 25), (5, 8)];

/// True if a progress notification of a server of this version means that every change before was sent.
pub fn progress_is_in_order(version: &str) -> bool {
    if version.ends_with("+solo") {
        return true;
    }
    match numbers(version) {
        Some((3, minor, patch)) => match IN_ORDER.iter().find(|(fixed, _)| *fixed == minor) {
            Some((_, fixed)) => patch >= *fixed,
            None => minor > IN_ORDER[1].0,
        },
        Some((major, ..)) => major > 3,
        None => false,
    }
}

fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
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

    #[test]
    fn progress_is_trusted_from_the_fix_on() {
        for (version, expected) in [
            ("3.3.27", false),
            ("3.4.23", false),
            ("3.4.25", true),
            ("3.5.7", false),
            ("3.5.8", true),
            ("3.6.0", true),
            ("4.0.0", true),
            ("3.4.23+solo", true),
            ("solo", false),
        ] {
            assert_eq!(progress_is_in_order(version), expected, "{version}");
        }
    }
}
