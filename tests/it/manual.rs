//! The manual pages, as a program that shows them reads them.

use std::path::PathBuf;
use std::process::Command;
use tests::process::{binary, run};

#[test]
fn every_manual_page_renders_without_warnings() {
    let directory = tempfile::tempdir().expect("a directory");
    let written =
        run(Command::new(binary("orchestrate")).env_clear().arg("manual").arg(directory.path()), "");
    assert!(written.status.success(), "{written:?}");
    let listed = String::from_utf8(written.stdout).expect("text");
    let pages: Vec<PathBuf> = listed.lines().map(PathBuf::from).collect();
    assert!(pages.len() > 70, "{pages:?}");
    let output = run(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&pages), "");
    let warnings = String::from_utf8_lossy(&output.stdout).into_owned();
    // Pages without a date are the same whenever they are made.
    let others: Vec<&str> =
        warnings.lines().filter(|line| !line.ends_with("missing date, using \"\": TH")).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(warnings.lines().count(), pages.len(), "mandoc has read every page: {warnings}");
    let shown = |page: &str| {
        let output = run(Command::new("mandoc").args(["-T", "ascii"]).arg(directory.path().join(page)), "");
        // Bold words are printed over themselves.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let letters: Vec<char> = text.chars().collect();
        let kept = letters
            .iter()
            .enumerate()
            .filter(|(at, letter)| **letter != '\u{8}' && letters.get(at + 1) != Some(&'\u{8}'));
        kept.map(|(_, letter)| *letter).collect::<String>()
    };
    let status = shown("man1/orchestrate-status.1");
    for part in
        ["SYNOPSIS", "orchestrate status [--watch]", "EXIT STATUS", "settled: every host runs", "EXAMPLES"]
    {
        assert!(status.contains(part), "{part}: {status}");
    }
    let settings = shown("man5/orchestrate-agent.toml.5");
    for part in ["[VALIDATION]", "every", "default: 60s, reload: yes"] {
        assert!(settings.contains(part), "{part}: {settings}");
    }
}
