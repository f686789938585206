//! The settings of the observer: their manual, and what is said about mistakes.

use super::*;
use crate::recorder::{RECORDING_KEEP, RECORDING_MAX_MIB};
use schema::time::format_duration;
use std::collections::{BTreeMap, BTreeSet};

fn check(text: &str, expected: &[&str]) {
    let errors = read_observer("o.toml", text).err().map_or(Vec::new(), |SettingsErrors(errors)| errors);
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{text}");
}

/// Returns the names that the program accepts in a table.
fn accepted(table: &str) -> BTreeSet<String> {
    let error = toml::from_str::<Fragment>(&format!("[{table}]\nzzz = 1\n")).expect_err("an unknown setting");
    let (_, names) = error.message().split_once("expected").expect("the accepted names");
    names.split('`').skip(1).step_by(2).map(|name| format!("{table}.{name}")).collect()
}

#[test]
fn every_setting_is_documented_with_its_default() {
    let text = include_str!("../../../../docs/observer.md");
    let section = text.split("## Settings").nth(1).expect("a section");
    let rows = section.lines().skip_while(|line| !line.starts_with("| setting")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").map(|c| c.trim().trim_matches('`')));
    let documented: BTreeMap<&str, &str> =
        cells.map(|mut row| (row.next().expect("a name"), row.nth(1).expect("a default"))).collect();
    let names = documented.keys().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let mut accepted_names = BTreeSet::new();
    for table in ["http", "log", "incidents", "recorder", "recorder.upload"] {
        accepted_names.extend(accepted(table));
    }
    accepted_names.insert("state_directory".into());
    for table in ["notify", "notify.alertmanagers.NAME", "notify.webhooks.NAME", "notify.commands.NAME"] {
        accepted_names.extend(accepted(table));
    }
    let tables = ["notify.alertmanagers", "notify.webhooks", "notify.commands", "recorder.upload"];
    accepted_names.retain(|name| !tables.contains(&name.as_str()));
    assert_eq!(names, accepted_names);
    let default = read_observer("o.toml", "").expect("the defaults");
    let HttpAccess::Token(token) = &default.http_access else { panic!("{:?}", default.http_access) };
    for (name, value) in [
        ("http.listen", default.http_listen.to_string()),
        ("http.names", if default.http_names.is_empty() { "none".into() } else { String::new() }),
        ("http.public_url", default.http_public_url.map_or("none".into(), |url| url.origin)),
        ("http.token_file", token.display().to_string()),
        ("http.open_to_local_users", "false".into()),
        ("http.token_digests", "none".into()),
        ("http.cert", if default.http_tls.is_none() { "none".into() } else { String::new() }),
        ("state_directory", default.state_directory.display().to_string()),
        ("incidents.hold_for", format_duration(default.incident_times.hold_for)),
        ("incidents.clear_for", format_duration(default.incident_times.clear_for)),
        ("notify.cacert", default.notify.cacert.map_or("that of the system".into(), |_| String::new())),
        ("recorder.directory", default.recorder.map_or("none".into(), |_| String::new())),
        ("recorder.keep", format_duration(RECORDING_KEEP)),
        ("recorder.max_mib", RECORDING_MAX_MIB.to_string()),
        ("log.level", default.log_level),
        ("log.format", format!("{:?}", default.log_format).to_lowercase()),
    ] {
        assert_eq!(documented[name], value, "{name}");
    }
}

#[test]
fn every_mistake_of_the_file_is_named_with_its_line() {
    check("", &[]);
    check("[store]\nendpoints = [\"http://a:1\"]\n[http]\nlisten = \"[::1]:1\"\nnames = [\"ops\"]\n", &[]);
    check(
        "[store]\nlive_lease = \"9s\"\nuser = \"viewer\"\nnamespace = \"x\"\n[http]\nlisten = \"10.0.0.1:80\"\n\
         token_file = \"token\"\ntoken_fil = 1\n[log]\nlevel = \"loud\"\n",
        &[
            "o.toml:2: store.live_lease: only the agent has this setting",
            "o.toml:3: store.user: the setting `password_file` is missing",
            "o.toml:4: store.namespace: must be empty or begin with a slash, without a slash at its end, not \
             \"x\"",
            "o.toml:6: http.listen: must be an address of the machine itself, as in \"127.0.0.1:8590\"; \
             another one needs `cert`, `key` and `token_digests`",
            "o.toml:7: http.token_file: \"token\" must be an absolute path",
            "o.toml:8: unknown setting `token_fil`; did you mean `token_file`?",
            "o.toml:10: log.level: must be \"error\", \"warn\", \"info\", \"debug\" or \"trace\", or a filter \
             such as \"info,agent=debug\", not \"loud\"",
        ],
    );
    let tls = "cert = \"/c\"\nkey = \"/k\"\n";
    check(&format!("[http]\nlisten = \"0.0.0.0:1\"\n{tls}token_digests = \"/d\"\n"), &[]);
    check(
        &format!("[http]\n{tls}token_digests = \"d\"\ntoken_file = \"/t\"\nopen_to_local_users = true\n"),
        &[
            "o.toml:4: http.token_digests: \"d\" must be an absolute path",
            "o.toml:5: http.token_file: `token_digests` says already who may look",
            "o.toml:6: http.open_to_local_users: `token_digests` says already who may look",
        ],
    );
    let open = format!("[http]\nlisten = \"10.0.0.1:80\"\n{tls}open_to_local_users = true\n");
    check(
        &open,
        &[
            "o.toml:2: http.listen: must be an address of the machine itself, as in \"127.0.0.1:8590\"; another \
           one needs `cert`, `key` and `token_digests`",
        ],
    );
    check(
        "[http]\npublic_url = \"ops.example/fleet\"\n",
        &[
            "o.toml:2: http.public_url: must be the URL of the first page, as in \"https://ops.example/fleet/\", not \
             \"ops.example/fleet\"",
        ],
    );
    let public = "[http]\npublic_url = \"https://ops.example/fleet/\"\n";
    check(&format!("{public}open_to_local_users = false\n"), &[]);
    check(
        &format!("{public}open_to_local_users = true\n"),
        &[
            "o.toml:3: http.open_to_local_users: must not be true together with `public_url`: everybody who reaches the \
             proxy could look without a token; leave it out",
        ],
    );
    check(
        "[http]\npublic_url = \"https://ops.example/services\"\n",
        &[
            "o.toml:2: http.public_url: must not begin with a path of the observer itself, as /services; take another \
             first part, as in \"https://ops.example/fleet/services/\"",
        ],
    );
    let alertmanager = "[notify.alertmanagers.a]\nurl = \"https://a.example\"\n";
    check(&format!("{alertmanager}user = \"orchestrate\"\npassword_file = \"/p\"\n"), &[]);
    check(
        &format!("{alertmanager}user = \"a:b\"\n"),
        &[
            "o.toml:3: notify.alertmanagers.a.user: must be a name without a colon",
            "o.toml:3: notify.alertmanagers.a.user: the setting `password_file` is missing",
        ],
    );
    check(
        &format!("{alertmanager}password_file = \"p\"\n"),
        &[
            "o.toml:3: notify.alertmanagers.a.password_file: \"p\" must be an absolute path",
            "o.toml:3: notify.alertmanagers.a.password_file: the setting `user` is missing",
        ],
    );
    check("[recorder]\nkeep = \"1d\"\n", &["o.toml:2: recorder.keep: the setting `directory` is missing"]);
    check(
        "[recorder]\ndirectory = \"d\"\nkeep = \"0\"\n",
        &[
            "o.toml:2: recorder.directory: \"d\" must be an absolute path",
            "o.toml:3: recorder.keep: must be more than 0",
        ],
    );
    check(
        "[recorder]\ndirectory = \"/d\"\nmax_mib = 31\n",
        &["o.toml:3: recorder.max_mib: must be at least 32: one segment takes 8 or more"],
    );
    check(
        "[recorder]\ndirectory = \"/d\"\n[recorder.upload]\nto = \"s3://b\"\ncacert = \"c\"\n",
        &[
            "o.toml:4: recorder.upload.to: a bucket needs the settings `endpoint` and `credentials`",
            "o.toml:5: recorder.upload.cacert: \"c\" must be an absolute path",
        ],
    );
    check(
        "[recorder]\n[recorder.upload]\nto = \"file:///d\"\n",
        &["o.toml:2: recorder.upload: the setting `directory` is missing"],
    );
    check(
        "[recorder]\ndirectory = \"/d\"\n[recorder.upload]\nregion = \"r\"\n",
        &["o.toml:3: recorder.upload: the setting `to` is missing"],
    );
    check("[http]\ncert = \"/c\"\n", &["o.toml:2: http.cert: the setting `key` is missing"]);
    check("[http]\nkey = \"/k\"\n", &["o.toml:2: http.key: the setting `cert` is missing"]);
    check(
        "[notify]\nheartbeat_url = \"http://a.example/secret\"\n[notify.webhooks.chat]\nurl = \"x\"\nsecret_files = []\n\
         min_severity = \"loud\"\n[notify.webhooks.\"a b\"]\nurl = \"https://a.example/\"\n\
         secret_files = [\"key\"]\n[notify.commands.pager]\nrun = [\"page\"]\ntimeout = \"0\"\n",
        &[
            "o.toml:2: notify.heartbeat_url: must begin with https://, because what is sent to another machine \
             must be encrypted",
            "o.toml:4: notify.webhooks.chat.url: must be a URL that begins with https://, or with http:// and an \
             address of this machine",
            "o.toml:5: notify.webhooks.chat.secret_files: name the file of one key, or of two while the key \
             changes",
            "o.toml:6: notify.webhooks.chat.min_severity: must be \"info\", \"ticket\" or \"page\", not \"loud\"",
            "o.toml:7: notify.webhooks.a b: the name \"a b\" must be of letters, digits, - and _, at most 64",
            "o.toml:9: notify.webhooks.a b.secret_files: must be absolute paths of files",
            "o.toml:11: notify.commands.pager.run: the program \"page\" must be an absolute path",
            "o.toml:12: notify.commands.pager.timeout: must be more than 0",
        ],
    );
}
