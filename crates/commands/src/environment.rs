//! What every command finds in its environment.

use crate::trust;
use std::collections::BTreeMap;

/// Where the users of a machine are (passwd(5)).
const USERS: &str = "/etc/passwd";

/// Returns the variables of every command: the search path, a language without surprises, and the user as whom this
/// process runs, as the service manager sets them.
pub fn base_environment() -> BTreeMap<String, String> {
    let mut environment =
        BTreeMap::from([("PATH".to_owned(), trust::PATH.to_owned()), ("LANG".into(), "C.UTF-8".into())]);
    let users = std::fs::read(USERS).unwrap_or_default();
    environment.extend(of_user(&String::from_utf8_lossy(&users), rustix::process::geteuid().as_raw()));
    environment
}

/// Returns the variables of a user. One who is not in the file has none, except root.
fn of_user(users: &str, id: u32) -> BTreeMap<String, String> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, _, _, home, shell] = fields[..] else { return None };
        (uid.parse() == Ok(id)).then(|| (name.to_owned(), home.to_owned(), shell.to_owned()))
    };
    let found = users.lines().find_map(of_line);
    let root = (id == 0).then(|| ("root".to_owned(), "/root".to_owned(), "/bin/sh".to_owned()));
    let Some((name, home, shell)) = found.or(root) else { return BTreeMap::new() };
    let variables = [("USER", name.clone()), ("LOGNAME", name), ("HOME", home), ("SHELL", shell)];
    let is_set = |(_, value): &(&str, String)| !value.is_empty();
    variables.into_iter().filter(is_set).map(|(variable, value)| (variable.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_the_one_of_the_system() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbroken\ndeploy:x:998:998::/var/lib/deploy:/usr/sbin/nologin\n\
                     bare:x:7:7:::\n";
        let check = |id: u32, expected: &[(&str, &str)]| {
            let found = of_user(users, id);
            let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(found, expected, "{id}");
        };
        check(0, &[("HOME", "/root"), ("LOGNAME", "root"), ("SHELL", "/bin/bash"), ("USER", "root")]);
        let deploy = [("HOME", "/var/lib/deploy"), ("LOGNAME", "deploy"), ("SHELL", "/usr/sbin/nologin")];
        check(998, &[&deploy[..], &[("USER", "deploy")]].concat());
        check(7, &[("LOGNAME", "bare"), ("USER", "bare")]);
        check(4711, &[]);
        assert_eq!(of_user("", 0)["HOME"], "/root");
    }
}
