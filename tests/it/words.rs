//! Words that the code used once and that strangers stumbled over. docs/glossary.md has the words of today.

use proc_macro2::{TokenStream, TokenTree};
use std::path::PathBuf;
use std::process::Command;

/// An identifier that must not come back, and what to say instead.
const BANNED: &[(&str, &str)] = &[
    ("Around", "RosterContext, or what the context is of"),
    ("Asked", "Interest, Request or Query"),
    ("Board", "CheckRegistry"),
    ("Evidence", "HostFacts"),
    ("Finding", "Diagnostic"),
    ("FleetWord", "FleetState"),
    ("OutOfUse", "MaintenanceEntry"),
    ("OutOfUseHow", "MaintenanceMode"),
    ("Picture", "KeySnapshot"),
    ("ReleaseView", "DropStale"),
    ("ReleaseWish", "DropStaleRequest"),
    ("Relist", "Compacted"),
    ("RetryWish", "RetryRequest"),
    ("Said", "what the struct holds"),
    ("Shown", "CatalogSnapshot, or View"),
    ("ShownCheck", "CheckView"),
    ("ShownInstance", "InstanceView"),
    ("ShownTarget", "StatusTarget"),
    ("Standing", "StoreTrust"),
    ("Told", "what the struct holds"),
    ("Turn", "Context"),
    ("Weight", "Severity"),
    ("Wish", "Request"),
    ("Withheld", "Retained"),
    ("acted_on", "observed_instruction"),
    ("asked", "request, interest or query"),
    ("complain", "report_error"),
    ("draw", "jitter"),
    ("evidence", "facts"),
    ("first_turn", "first_context"),
    ("has_room", "check_quota"),
    ("in_words", "describe"),
    ("judge", "assess"),
    ("look_again", "requeue_at"),
    ("look_at_store", "observe_store"),
    ("look_now", "request_resync"),
    ("meanwhile", "idle_cycle"),
    ("oddities", "warnings"),
    ("out_of_use", "maintenance"),
    ("passed_over", "skipped"),
    ("picture", "snapshot"),
    ("remedy", "hint"),
    ("retry_heeded", "observed_retry"),
    ("said", "what the variable holds"),
    ("standing", "trust"),
    ("take_in", "merge"),
    ("told", "what the variable holds"),
    ("trouble", "error or problem"),
    ("undisturbed", "before_start"),
    ("wish", "request"),
    ("withheld", "retained"),
];

#[test]
fn identifiers_are_words_of_the_glossary_and_not_of_the_past() {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])
        .current_dir(&repository)
        .output()
        .expect("git");
    let files = String::from_utf8(output.stdout).expect("text");
    let mut found = Vec::new();
    for file in files.lines() {
        // A file that was moved is listed until the change is committed.
        let Ok(text) = std::fs::read_to_string(repository.join(file)) else { continue };
        let mut names = Vec::new();
        identifiers(text.parse().expect(file), &mut names);
        for (banned, instead) in BANNED {
            if names.iter().any(|name| name == banned) {
                found.push(format!("{file}: {banned}; say {instead}"));
            }
        }
    }
    assert!(files.lines().count() > 100, "{files}");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn identifiers_inside_of_macros_are_found() {
    let mut names = Vec::new();
    identifiers("fn f() { assert!(said.is_empty(), \"told\"); }".parse().expect("tokens"), &mut names);
    assert_eq!(names, ["fn", "f", "assert", "said", "is_empty"]);
}

/// Adds every identifier and keyword of a text, also those in macros, in order.
fn identifiers(tokens: TokenStream, names: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Group(group) => identifiers(group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
