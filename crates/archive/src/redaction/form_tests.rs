//! Forms of secrets that nobody knows.

use super::{Cut, Redactor, in_form};

#[test]
fn common_forms_of_secrets_are_removed() {
    for (text, expected) in [
        ("password: hunter2 x", "password: *** x"),
        ("DB_PASSWORD:hunter2, n: 3", "DB_PASSWORD:***, n: 3"),
        ("password = hunter2\nx = 1", "password = ***\nx = 1"),
        ("my passphrase: 'two words' x", "my passphrase: '***' x"),
        (r#"{"password": "a\"b", "n": 1}"#, r#"{"password": "***", "n": 1}"#),
        (r#"{\"api_key\":\"abc\",\"n\":1}"#, r#"{\"api_key\":\"***\",\"n\":1}"#),
        ("X-Auth-Token: abc\r\nAccept: x", "X-Auth-Token: ***\r\nAccept: x"),
        ("password:\nnext: line", "password:\nnext: line"),
        ("pwd: /home pass: 3 fail: 0", "pwd: /home pass: 3 fail: 0"),
        ("curl -u me:hunter2 http://h/", "curl -u me:*** http://h/"),
        ("curl --user='me:two words' h", "curl --user='me:***' h"),
        ("lp -u me file, x-u a:b", "lp -u me file, x-u a:b"),
        ("> Authorization: Basic bWU6eA==", "> Authorization: Basic ***"),
        (r#"{"Authorization":"Bearer abc.def","n":1}"#, r#"{"Authorization":"Bearer ***","n":1}"#),
        ("authorization: abcdef", "authorization: ***"),
        ("authorization: a authorization: b", "authorization: a ***"),
        (
            "authorization:authorization: b\nauthorization: c",
            "authorization:authorization: ***\nauthorization: ***",
        ),
        ("x--user=a:b (--user=(--user=a:b", "x--user=a:b (--user=(--user=a:***"),
        ("sent bearer eyJhbGciOiJIUzI1NiJ9.e30.x", "sent bearer ***"),
        ("the bearer of bad news, basic arithmetic", "the bearer of bad news, basic arithmetic"),
        (
            "a\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\nEEIB==\n-----END EC PRIVATE KEY-----\nb",
            "a\n-----BEGIN EC PRIVATE KEY-----***\n\n\n-----END EC PRIVATE KEY-----\nb",
        ),
        (
            "-----BEGIN PRIVATE KEY-----\nMHcCAQ\nEEIB\nand more words",
            "-----BEGIN PRIVATE KEY-----***\n\n\nand more words",
        ),
        ("a b\nMHcCAQ\n-----END PRIVATE KEY-----\nb", "a b\n***\n-----END PRIVATE KEY-----\nb"),
        (
            "-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nMHcC\n x-----BEGIN PRIVATE KEY-----\nMHcC",
            "-----BEGIN PRIVATE KEY-----***\n\n\n x-----BEGIN PRIVATE KEY-----***\n",
        ),
        (
            "  -----BEGIN RSA PRIVATE KEY-----\n  Proc-Type: 4,ENCRYPTED\n  MHcC\nand words",
            "  -----BEGIN RSA PRIVATE KEY-----***\n\n\nand words",
        ),
        (
            "no PRIVATE KEY-----\nMHcC\n-----END PRIVATE KEY-----",
            "no PRIVATE KEY-----***\n\n-----END PRIVATE KEY-----",
        ),
        ("-----BEGIN CERTIFICATE-----\nMII", "-----BEGIN CERTIFICATE-----\nMII"),
    ] {
        assert_eq!(Redactor::default().redact(text, Cut::default()), expected, "{text}");
    }
}

#[test]
fn a_megabyte_without_line_ends_is_looked_at_once() {
    const LENGTH: usize = 1 << 20;
    for pattern in [
        "authorization:",
        "authorization: x ",
        "(--user=",
        "--user=",
        "(--user=a:",
        "--proxy-user=x:",
        "-u a:",
        "password=x",
        "password: 'x",
        "a://b:c@",
        "bearer ",
        "PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nx",
        "-----END PRIVATE KEY-----",
        "A-----END PRIVATE KEY-----",
    ] {
        let text = pattern.repeat(LENGTH / pattern.len());
        // Places within places would be work that grows with the square of the length.
        let hidden: usize = in_form(&text).map(|range| range.len()).sum();
        assert!(hidden <= 5 * text.len(), "{pattern:?} {hidden}");
    }
}
