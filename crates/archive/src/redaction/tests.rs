use super::*;
use proptest::prelude::*;

fn check(secrets: &[&str], cut: Cut, rows: &[(&str, &str)]) {
    let redactor = Redactor::new(secrets.iter().map(|secret| secret.as_bytes()));
    for (text, expected) in rows {
        assert_eq!(redactor.redact(text, cut), *expected, "{text}");
    }
}

#[test]
fn known_secrets_are_removed_also_where_they_are_encoded_or_split() {
    // In JSON: "s3c\"rét/+ x" and "s3c\"r\u00e9t\/+ x".
    let secret = "s3c\"rét/+ x";
    check(
        &[secret, "canary1", "canary1long", "e", "key\r\nof two\nlines", "my secret pass1"],
        Cut::default(),
        &[
            ("nothing here to see: a=b", "nothing here to see: a=b"),
            ("canary1 and canary1long, canary1canary1", "*** and ***, ******"),
            // A secret of one letter is not removed from every word.
            ("the end of the beginning", "the end of the beginning"),
            ("its s3c\"rét/+ x is", "its *** is"),
            ("its s3c%22r%C3%A9t%2F%2B%20x is", "its *** is"),
            ("its s3c%22r%c3%a9t%2f%2b+x is", "its *** is"),
            ("its s3c%22r%C3%A9t/+%20x is", "its *** is"),
            (r#"{"a":"s3c\"rét/+ x"}"#, r#"{"a":"***"}"#),
            (r#"{"a":"s3c\"r\u00e9t\/+ x"}"#, r#"{"a":"***"}"#),
            (r#"{"a":"s3c\u0022r\u00E9t\/\u002b x"}"#, r#"{"a":"***"}"#),
            ("it is s3c\"r\nét/\r\n+ x.", "it is ***\n\n."),
            ("a key\nof twolines b", "a ***\n b"),
            // printf 's3c"rét/+ x' | base64, then with other text before it, and in lines of ten. The first and the last
            // character belong to the secret only in part.
            ("czNjInLDqXQvKyB4", "***"),
            ("auth dXNlcjpzM2MicsOpdC8rIHg=", "auth dXNlcjp***g="),
            ("dXNlcjpzM2\nMicsOpdC8r\nIHg=", "dXNlcjp***\n\ng="),
            // Blanks in a form.
            ("GET /x?q=my+secret+pass1&n=1+2", "GET /x?q=***&n=1+2"),
            // printf 'key\nof two\nlines\n' | base64, and the same with CR LF.
            ("a2V5Cm9mIHR3bwpsaW5lcwo=", "***wo="),
            ("a2V5DQpvZiB0d28NCmxpbmVzDQo=", "***DQo="),
        ],
    );
}

#[test]
fn known_secrets_are_removed_in_hex_in_other_case_and_where_a_colour_divides_them() {
    check(
        &["canary-one", "Straße9"],
        Cut::default(),
        &[
            // printf canary-one | xxd -p
            ("is 63616e6172792d6f6e65.", "is ***."),
            ("IS 63616E6172792D6F6E65!", "IS ***!"),
            ("63616e6172\n792d6f6e65", "***\n"),
            ("CANARY-ONE Canary-One", "*** ***"),
            ("STRAße9", "***"),
            ("a can\u{1b}[1;31mary\u{1b}[0m-one b", "a *** b"),
            ("c\u{1b}(Banary-one", "***"),
            ("c\u{1b}[31", "c\u{1b}[31"),
        ],
    );
    let (begin, end) = (Cut { begin: true, end: false }, Cut { begin: false, end: true });
    check(&["canary-one"], begin, &[("ARY-ONE it", "*** it"), ("2d6F6e65 it", "*** it")]);
    check(&["canary-one"], end, &[("is CANARY", "is ***"), ("is 63616E6172", "is ***")]);
}

fn check_patterns(patterns: &[&str], cut: Cut, rows: &[(&str, &str)]) {
    let patterns = patterns.iter().map(|pattern| Regex::new(pattern).unwrap()).collect();
    let redactor = Redactor::default().with_patterns(patterns);
    for (text, expected) in rows {
        assert_eq!(redactor.redact(text, cut), *expected, "{text}");
    }
}

#[test]
fn what_matches_a_pattern_is_removed_also_where_it_is_encoded_or_split() {
    check_patterns(
        &["tok-[0-9]{6}", "(?i)key: .*", "x\"/y[0-9]", "^id [0-9]+$"],
        Cut::default(),
        &[
            ("nothing to see: tok-12345 and tok", "nothing to see: tok-12345 and tok"),
            ("is tok-123456, tok-1234567", "is ***, ***7"),
            ("a\nKEY: all of it\n", "a\n***\n"),
            // Nobody knows whether it goes on in the next line, but it does not go on after that.
            ("a\nKEY: all\nof it\nb", "a\n***\n\nb"),
            ("is tok-1\r\n23456.", "is ***\n."),
            ("GET /?a=tok%2D12345%36&b", "GET /?a=***&b"),
            (r#"{"a":"tok\u002d123456","b":"x\"\/y1"}"#, r#"{"a":"***","b":"***"}"#),
            // printf 'my tok-123456 is' | base64, then in lines of ten.
            ("bXkgdG9rLTEyMzQ1NiBpcw==", "bXkg***Bpcw=="),
            ("see bXkgdG9rLT\nEyMzQ1NiBpcw== there", "see bXkg***\nBpcw== there"),
            // printf 'x"/y1>>>???' | base64, and as in a URL.
            ("eCIveTE+Pj4/Pz8=", "***+Pj4/Pz8="),
            ("_-_-eCIveTE-Pj4_Pz8", "_-_-***-Pj4_Pz8"),
            ("id 77\nid 78 x\nid 79", "***\nid 78 x\n***"),
            ("ü tok-123456 ü", "ü *** ü"),
            // printf 'a\nid 77\n' | base64.
            ("YQppZCA3Nwo=", "YQ***o="),
            // printf 'ÿ~ tok-123456' | base64, as in a URL and as in JSON of PHP; printf 'my tok-123456 is' in lines.
            ("?t=w79%2BIHRvay0xMjM0NTY%3D", "?t=w79%2BI***%3D"),
            ("\"bXkgdG9rLT\\nEyMzQ1NiBpcw==\"", "\"bXkg***Bpcw==\""),
        ],
    );
    let (begin, end) = (Cut { begin: true, end: false }, Cut { begin: false, end: true });
    let pattern = ["tok-[0-9]{6}"];
    check_patterns(
        &pattern,
        begin,
        &[
            ("23456 is tok-1", "*** is tok-1"),
            ("23456", "***"),
            ("\na b", "***\n b"),
            ("5678\n9012 rest", "***\n rest"),
            ("56\n78\n90", "***\n\n90"),
            ("\n", "\n"),
        ],
    );
    check_patterns(
        &pattern,
        end,
        &[
            ("23456 is tok-1", "23456 is ***"),
            ("a b\ntok", "a ***\n"),
            ("is tok-12\n", "is ***\n"),
            ("a\r\nb\r\n", "***\n\n"),
            ("\n", "\n"),
        ],
    );
}

#[test]
fn text_with_the_form_of_a_secret_is_removed() {
    check(
        &[],
        Cut::default(),
        &[
            (
                "https://u:p@h/x http://u@h:80/y ftp://h/a:b@c",
                "https://u:***@h/x http://u@h:80/y ftp://h/a:b@c",
            ),
            ("mysql://app:p@ss:w@db:3306/x", "mysql://app:***@db:3306/x"),
            ("GET /x?token=abc&n=1 HTTP/1.1", "GET /x?token=***&n=1 HTTP/1.1"),
            ("PGPASSWORD=abc psql", "PGPASSWORD=*** psql"),
            ("password='a b' password=\"c d\" x", "password='***' password=\"***\" x"),
            ("password= token=", "password= token="),
            ("x?access_token=https://u:p@h/", "x?access_token=***"),
            ("token=token=a=b c token=d", "token=*** c token=***"),
            ("ü=1 çpassword=ü é", "ü=1 çpassword=*** é"),
        ],
    );
}

#[test]
fn where_a_text_was_cut_parts_of_secrets_are_removed() {
    let secrets = ["canary-one", "canary-two"];
    let (begin, end) = (Cut { begin: true, end: false }, Cut { begin: false, end: true });
    let rows = |begins: &'static str, ends: &'static str| {
        [("ary-one: it is canary", begins), ("-two and cana", ends), ("one and can", "one and can")]
    };
    check(&secrets, Cut::default(), &rows("ary-one: it is canary", "-two and cana"));
    check(&secrets, begin, &rows("***: it is canary", "*** and cana"));
    check(&secrets, end, &rows("ary-one: it is ***", "-two and ***"));
    check(&secrets, begin, &[("ary\n-one", "***\n"), ("ary", "ary"), ("", "")]);
    // The cut is in a character, or in an escape.
    let secrets = ["pässword123"];
    check(
        &secrets,
        begin,
        &[("\u{fffd}ssword123.", "***."), ("A4ssword123.", "***."), ("00e4ssword123", "***")],
    );
    check(&["123pässword"], end, &[("is 123p\u{fffd}", "is ***"), ("is 123p%C3%A", "is ***")]);
}

/// A secret of characters that have other forms somewhere.
fn secret() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select("aZ9+/=&%\"\\ üß€😀-_.~".chars().collect::<Vec<_>>()), 8..24)
        .prop_map(String::from_iter)
}

fn percent(text: &str, keeps: impl Fn(u8) -> bool, is_upper: bool) -> String {
    let byte = |byte: u8| match (keeps(byte), is_upper) {
        (true, _) => char::from(byte).to_string(),
        (false, true) => format!("%{byte:02X}"),
        (false, false) => format!("%{byte:02x}"),
    };
    text.bytes().map(byte).collect()
}

/// Returns a secret in each form in which programs write it, and what of it must not be seen.
fn written(secret: &str, before: &str) -> Vec<(String, String)> {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let json: String =
        secret.chars().map(|c| if "\"\\".contains(c) { format!("\\{c}") } else { c.into() }).collect();
    let ascii = |c: char| {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}"));
        if c.is_ascii() && !"\"\\".contains(c) { c.to_string() } else { units.collect() }
    };
    let mut all = vec![
        secret.to_owned(),
        percent(secret, unreserved, true),
        percent(secret, unreserved, false),
        percent(secret, unreserved, true).replace("%20", "+"),
        percent(secret, |byte| byte.is_ascii_graphic() && !b"%\"\\".contains(&byte), true),
        json,
        secret.chars().map(ascii).collect(),
    ];
    all.dedup();
    let mut all: Vec<(String, String)> = all.into_iter().map(|form| (form.clone(), form)).collect();
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        let encoded = engine.encode(format!("{before}{secret}"));
        let certain = (before.len() * 8).div_ceil(6)..encoded.len() - 1;
        all.push((encoded.clone(), encoded[certain].to_owned()));
    }
    all
}

proptest! {
    #[test]
    fn no_form_of_a_secret_is_left_however_it_is_split(
        secret in secret(),
        before in "[a-z:]{0,5}",
        breaks in prop::collection::vec(0..60usize, 0..4),
        other in secret(),
    ) {
        let redactor = Redactor::new([secret.as_bytes(), other.as_bytes()]);
        for (form, unseen) in written(&secret, &before) {
            let mut text = form.clone();
            for at in &breaks {
                text.insert(text.floor_char_boundary(at % (text.len() + 1)), '\n');
            }
            let redacted = redactor.redact(&format!("begin {text} end"), Cut::default());
            prop_assert!(!redacted.replace('\n', "").contains(&unseen), "{form}: {redacted}");
            prop_assert!(redacted.starts_with("begin ") && redacted.ends_with(" end"), "{redacted}");
            prop_assert_eq!(redacted.matches('\n').count(), breaks.len());
            let again = redactor.redact(&redacted, Cut::default());
            prop_assert_eq!(&again, &redacted, "what was removed is not removed again");
        }
    }

    #[test]
    fn no_form_of_what_matches_a_pattern_is_left_however_it_is_split_once(
        number in "[0-9]{8}",
        before in "[a-z:]{0,5}",
        at in 0..60usize,
    ) {
        let redactor = Redactor::default().with_patterns(vec![Regex::new("s/\"[0-9]{8}ü").unwrap()]);
        let secret = format!("s/\"{number}ü");
        for (form, unseen) in written(&secret, &before) {
            let mut text = form.clone();
            text.insert(text.floor_char_boundary(at % (text.len() + 1)), '\n');
            let redacted = redactor.redact(&format!("begin {text} end"), Cut::default());
            prop_assert!(!redacted.replace('\n', "").contains(&unseen), "{form}: {redacted}");
            prop_assert!(redacted.starts_with("begin ") && redacted.ends_with(" end"), "{redacted}");
        }
    }

    #[test]
    fn a_part_of_a_secret_is_not_left_where_a_text_was_cut(secret in "[a-z0-9]{8,20}", at in 1..20usize) {
        let redactor = Redactor::new([secret.as_bytes()]);
        let (head, tail) = secret.split_at(at % secret.len());
        for part in [head, tail].into_iter().filter(|part| part.len() >= SHORTEST_PART) {
            let cut = Cut { begin: part == tail, end: part == head };
            let text = if cut.begin { format!("{part} AND") } else { format!("AND {part}") };
            prop_assert!(!redactor.redact(&text, cut).contains(part));
        }
    }

    #[test]
    fn other_text_stays(text in "[A-Za-z \n%\\\\+ü]{0,60}", cut in any::<(bool, bool)>()) {
        let redactor = Redactor::new([&b"0123456789"[..]]);
        let cut = Cut { begin: cut.0, end: cut.1 };
        prop_assert_eq!(redactor.redact(&text, cut), text);
    }
}

/// Gives a text in pieces of odd lengths.
struct Pieces<'a>(&'a [u8], usize);

impl std::io::Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 * 7 % 1009 + 1;
        let length = self.1.min(into.len()).min(self.0.len());
        into[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

fn copied(redactor: &Redactor, text: &[u8]) -> String {
    let mut shown = Vec::new();
    let written = redactor.copy(Pieces(text, 3), Cut::default(), &mut shown).unwrap();
    assert_eq!(written, shown.len() as u64);
    String::from_utf8(shown).unwrap()
}

#[test]
fn no_secret_of_a_long_text_is_left_at_the_borders_of_its_parts() {
    let redactor = Redactor::new([b"canary-one-long".as_slice(), b"key of\ntwo lines"]);
    let secrets = [
        "canary-one-long",
        "canary-o\nne-long",
        "key of\ntwo lines",
        "password=abcdef",
        "Y2FuYXJ5LW9uZS1sb25n",
        "canary-\u{1b}[31mone-long",
        "CANARY-ONE-LONG",
        "-u me:abcdef",
        "password: abcdef",
    ];
    for secret in secrets {
        for (fill, shift) in [("x", 0), ("line\n", 1), ("wörd ", 2), ("", 0)] {
            let fill = fill.repeat(if fill.is_empty() { 0 } else { 997 / fill.len() });
            let text: String =
                (0..700).map(|n| format!("{fill}{} {secret} ", "y".repeat((n * 13 + shift) % 51))).collect();
            let shown = copied(&redactor, text.as_bytes());
            assert_eq!(shown.matches("***").count(), 700, "{secret:?} {shift}");
            for left in ["canary", "CANARY", "ne-long", "two lines", "abcdef", "2FuYXJ5LW9uZS1sb2"] {
                assert!(!shown.contains(left), "{left} of {secret:?}");
            }
        }
    }
}

#[test]
fn nothing_that_matches_a_pattern_is_left_at_the_borders_of_the_parts_of_a_long_text() {
    let redactor = Redactor::default().with_patterns(vec![Regex::new("tok-[0-9]{12}").unwrap()]);
    for secret in ["tok-123456789012", "tok-1234\n56789012", "dG9rLTEyMzQ1Njc4OTAxMg"] {
        for (fill, shift) in [("x ", 0), ("line\n", 1), ("", 2)] {
            let fill = fill.repeat(if fill.is_empty() { 0 } else { 997 / fill.len() });
            let text: String =
                (0..700).map(|n| format!("{fill}{} {secret} ", "y".repeat((n * 13 + shift) % 51))).collect();
            let shown = copied(&redactor, text.as_bytes());
            assert_eq!(shown.matches("***").count(), 700, "{secret:?} {shift}");
            for left in ["tok", "012", "TEyMzQ"] {
                assert!(!shown.contains(left), "{left} of {secret:?}");
            }
        }
    }
}

#[test]
fn of_lines_that_match_a_pattern_with_blanks_nothing_is_left() {
    let redactor = Redactor::default().with_patterns(vec![Regex::new("key: .*").unwrap()]);
    for text in ["key: a b c d e f g h\n".repeat(8000), format!("key: {}", "a b ".repeat(90_000))] {
        let shown = copied(&redactor, text.as_bytes());
        assert!(!shown.contains(|c: char| c.is_ascii_lowercase()), "{}", &shown[..99]);
    }
    let text = format!("{}end\n\nno secret\n", "key: a b c d e f g h\n".repeat(8000));
    assert!(copied(&redactor, text.as_bytes()).ends_with("\nno secret\n"));
}

#[test]
fn a_long_text_is_copied_as_it_is_but_for_what_is_no_text() {
    let redactor = Redactor::new([b"canary".as_slice()]);
    for text in
        ["", "a", "ä€😀", &"é".repeat(300_000), &"no newline ".repeat(50_000), &"a line\n".repeat(90_000)]
    {
        assert!(copied(&redactor, text.as_bytes()) == text, "{} bytes", text.len());
    }
    assert_eq!(copied(&redactor, b"a\xffb\xe2\x82"), "a\u{fffd}b\u{fffd}");
}

#[test]
fn of_a_secret_that_is_longer_than_a_part_nothing_is_left() {
    let long = "z".repeat(500_000);
    let lines = "zz zz\n".repeat(90_000);
    for (text, end) in [
        (format!("password={long} and more"), "*** and more"),
        (format!("    password=\"{long}\" and more"), "***\" and more"),
        (format!("    password=\"{lines}\" and more"), "***\" and more"),
        (format!("    password=\"{lines}"), "***"),
        (format!("é \t password='{}' and more", "zz ".repeat(200_000)), "***' and more"),
    ] {
        let shown = copied(&Redactor::default(), text.as_bytes());
        let shown = shown.replace('\n', "");
        assert!(
            !shown.contains('z') && shown.ends_with(end),
            "{} {}",
            shown.len(),
            &shown[..shown.len().min(99)]
        );
    }
}

#[test]
fn many_secrets_in_one_long_line_are_removed() {
    for part in ["https://ci:zzz@h/x\r", "token=zzz&", "é token=zzz ", "\r  password=\"zz z\" "] {
        let shown = copied(&Redactor::default(), part.repeat(20_000).as_bytes());
        assert!(!shown.contains('z'), "{part:?}");
        assert_eq!(shown.matches("***").count(), 20_000, "{part:?}");
    }
    let redactor = Redactor::new([[b's'; 9000].as_slice()]);
    let text = format!("{} ", "s".repeat(9000)).repeat(200);
    assert!(!copied(&redactor, text.as_bytes()).contains('s'));
}
