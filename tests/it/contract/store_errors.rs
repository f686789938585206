//! What a command says when it cannot ask the store, and that it does not wait if that would not help.

use serde_json::Value;
use tests::etcd::Etcd;
use tests::host::CommandOutput;
use tests::process::{binary, run};

fn orchestrate(line: &str) -> CommandOutput {
    let mut command = std::process::Command::new(binary("orchestrate"));
    command.env_clear().args(line.split_whitespace());
    run(&mut command, "").into()
}

/// A message with "no answer within" would say that the command waited until its time was over.
const WAITED: &str = "no answer within";

#[test]
fn an_error_that_somebody_has_to_mend_ends_the_command_at_once() {
    let etcd = Etcd::single();
    let tls = etcd.endpoints()[0].replace("http://", "https://");
    let check = |place: &str, code: i32, part: &str| {
        let answer = orchestrate(&format!("{place} status"));
        assert_eq!((answer.code, answer.out.as_str()), (code, ""), "{place}: {answer:?}");
        assert!(answer.err.contains(part) && !answer.err.contains(WAITED), "{place}: {answer:?}");
    };
    check("--endpoints ,", 64, "the list of endpoints is empty; name one");
    check("--endpoints ftp://x", 64, "the endpoint ftp://x begins with neither http:// nor https://");
    check("--endpoints-file /nonexistent", 2, "/nonexistent: No such file or directory");
    check("--endpoints-file /dev/null", 2, "endpoints: /dev/null has none");
    check(
        "--endpoints http://no-such-host.invalid:2379",
        2,
        "read: http://no-such-host.invalid:2379: the name is not found",
    );
    check(
        &format!("--endpoints {tls}"),
        2,
        "the server does not speak TLS\nhint: --cacert, --cert and --key ",
    );
}

#[test]
fn an_error_of_the_store_names_the_endpoint_and_the_settings() {
    let check = |place: &str, hint: &str| {
        let answer = orchestrate(&format!("{place} --timeout 100ms status"));
        assert_eq!(answer.code, 2, "{place}: {answer:?}");
        let begin = "error: read: no answer within 100ms: the store is not reachable: ";
        assert!(answer.err.starts_with(begin) && answer.err.contains(hint), "{place}: {answer:?}");
        assert_eq!(answer.err.matches("read: ").count(), 1, "the operation is named once: {answer:?}");
    };
    check(
        "--endpoints http://127.0.0.1:9",
        "hint: --endpoints or ORCHESTRATE_ENDPOINTS say where the store is",
    );
    check("--endpoints http://127.0.0.1:9", "http://127.0.0.1:9: connection refused: nothing listens there");
    for line in ["update_own_status puppet 0", "update_own_info --version 43"] {
        let answer = orchestrate(&format!("--endpoints http://127.0.0.1:9 --timeout 100ms {line}"));
        assert_eq!(answer.code, 2, "{line}: {answer:?}");
        assert!(answer.err.contains("127.0.0.1:9: connection refused"), "{line}: {answer:?}");
    }
    check(
        "--host 127.0.0.1 --port 9",
        "hint: --host names the store; name a host of the fleet as an argument, or with --hostname",
    );
    check(
        "--endpoints http://127.0.0.2:8580",
        "hint: 8580 is the HTTP port of agents; a store listens on 2379",
    );
}

#[test]
fn errors_are_json_if_json_is_wanted() {
    let etcd = Etcd::single();
    let place = format!("--endpoints {}", etcd.endpoints()[0]);
    let check = |line: &str, kind: &str, code: i32, message: &str| {
        let answer = orchestrate(line);
        let json: Value =
            serde_json::from_str(&answer.out).unwrap_or_else(|e| panic!("{line}: {e}: {answer:?}"));
        let error = &json["error"];
        assert_eq!((error["kind"].as_str(), answer.code), (Some(kind), code), "{line}: {answer:?}");
        assert_eq!(error["exit_code"], code, "{line}");
        let message_of_error = error["message"].as_str().expect("a text");
        assert!(message_of_error.starts_with(message), "{line}: {message_of_error}");
        assert!(answer.err.starts_with(&format!("error: {message_of_error}")), "{line}: {answer:?}");
    };
    check(
        "-o json --endpoints http://127.0.0.1:9 --timeout 50ms status",
        "deadline",
        2,
        "read: no answer within",
    );
    check(&format!("{place} -o json why nobody"), "no", 1, "host nobody is not known");
    check("--output=json status --nonsense", "usage", 64, "unexpected argument '--nonsense' found");
    check("-ojson trigger_update /", "usage", 64, "");
}
