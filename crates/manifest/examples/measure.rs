//! Measures what a manifest of 500 services costs: reading, the canonical form and the difference to another one.
//! Run it with `cargo run --release --example measure`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "this program measures")]

use manifest::{Input, Reading, Source, diff, read};
use std::io::Write as _;
use std::time::Instant;

fn main() -> std::io::Result<()> {
    let (old, new) = (manifest_of("a"), manifest_of("b"));
    let bytes = old.text.len();
    let mut times: Vec<[u128; 4]> = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let (before, after) = (reading(&old), reading(&new));
        let parsed = start.elapsed().as_micros() / 2;
        let start = Instant::now();
        let length = before.manifest.canonical().len();
        let canonical = start.elapsed().as_micros();
        let start = Instant::now();
        let digests =
            before.manifest.services.values().filter(|s| s.spec.digest().as_str().len() == 64).count();
        let digested = start.elapsed().as_micros();
        let start = Instant::now();
        let changes = diff(&before.manifest, &after.manifest).services.len();
        times.push([parsed, canonical, digested, start.elapsed().as_micros()]);
        assert!((length > 100_000, digests, changes) == (true, 500, 500), "{length} {digests} {changes}");
    }
    times.sort_by_key(|parts| parts.iter().sum::<u128>());
    let [parsed, canonical, digested, compared] = times[times.len() / 2];
    let total = parsed + canonical + digested + compared;
    let mut output = std::io::stdout();
    writeln!(output, "500 services, {bytes} bytes, microseconds (median of 20):")?;
    writeln!(
        output,
        "read {parsed}, canonical form {canonical}, digests {digested}, difference {compared}, total {total}"
    )
}

fn reading(source: &Source) -> Reading {
    match read(&Input { sources: vec![source.clone()], ..Input::default() }) {
        Ok(reading) => reading,
        Err(mistakes) => panic!("{mistakes:#?}"),
    }
}

fn manifest_of(value: &str) -> Source {
    let mut text =
        "name: shop\nvolumes: {data: }\nx-common: &common\n  stop_grace_period: 1m30s\nservices:\n"
            .to_owned();
    for number in 0..500 {
        text.push_str(&format!(
            "  service-{number}:
    <<: *common
    x-orchestrate: {{unit: \"worker-{number}@.service\"}}
    environment:
      QUEUE: ${{QUEUE:-mail-{number}}}
      VALUE: {value}
      PORT: 8080
      LEVEL: info
    labels: [team=a, \"tier=x\"]
    volumes: [data:/var/lib/worker]
    deploy:
      replicas: 3
      placement:
        constraints: [\"node.labels.zone != attic\", node.role == web]
        preferences: [{{spread: node.labels.rack}}]
        max_replicas_per_node: 2
      resources: {{reservations: {{cpus: '0.25', memory: 64m}}}}
"
        ));
    }
    Source::new("compose.yaml", text)
}
