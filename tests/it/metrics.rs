//! The metrics of the agent and of the embedded store, against their manual and by Prometheus' own check.

use rustix::process::Signal;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::run;
use tests::solo::Solo;
use tests::wait;

/// Returns the metrics in the tables under a heading of the manual: name and type. `prefix` precedes the names.
fn documented(heading: &str, prefix: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md"))
        .expect("the manual");
    let part = text.split("\n## ").find(|part| part.starts_with(heading)).expect("the heading");
    let rows = part.lines().filter_map(|line| {
        let mut cells =
            line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        Some((format!("{prefix}{}", cells.next()?), cells.next()?))
    });
    rows.collect()
}

/// Returns the metrics in a text in Prometheus' format: name and type.
fn shown(text: &str) -> BTreeMap<String, String> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Returns the value of a sample.
fn value(text: &str, sample: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{sample}: {text}")).parse().expect("a number")
}

/// Asserts that Prometheus' own check finds nothing to complain about.
fn check_by_prometheus(name: &str, text: &str) {
    let mut command = Command::new("promtool");
    if Command::new("promtool").arg("--version").output().is_err() {
        return tests::skip(name, "no promtool on the PATH");
    }
    let output = run(command.args(["check", "metrics"]), text);
    let complaints =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{complaints}\n{text}");
}

#[test]
fn the_agent_shows_what_its_manual_says() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("h1", &etcd.endpoints());
    let at = |name: &str| host.path(name).display().to_string();
    let (source, target) = (at("source.j2"), at("target"));
    let template = format!("[[template]]\nsource = {source:?}\ntarget = {target:?}\n");
    let mut host = host.with(&template);
    host.write("source.j2", "{{ service(\"web\") | length }}\n");
    host.write_switched_service("web", 8080);
    host.write("web-works", "");
    let begun = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs_f64() - 1.0;
    host.start();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.wait_for_name(&["web.service.consul"], &["127.0.0.1"]);
    host.signal(Signal::HUP);
    let drained = host.command(&["drain", "h1", "--service", "web", "--force"], "");
    assert_eq!(drained.code, 0, "{drained:?}");
    let metrics = || host.http_get("/metrics").map(|(_, text)| text).unwrap_or_default();
    let rendered = format!("template_up_to_date{{target={target:?}}} 1.0\n");
    let is_complete = |text: &String| {
        let is_applied = text.contains("settings_reads_total{result=\"applied\"} 1\n");
        let is_marked = text.contains("maintenance_since_timestamp_seconds{");
        // The first look is counted after it is answered.
        let is_seen = text.contains("http_requests_total{");
        is_applied && is_marked && is_seen && text.contains(&rendered) && text.contains("check_passing{")
    };
    let text = wait::until("all was counted", || Some(metrics()).filter(is_complete), metrics);
    let mut expected = documented("Agent", "orchestrate_agent_");
    expected.extend(documented("Process", ""));
    // The tables use OpenMetrics' word; the text has gauges.
    expected.values_mut().filter(|kind| *kind == "info").for_each(|kind| *kind = "gauge".into());
    // Only a connection with certificates has them.
    assert!(expected.remove("orchestrate_agent_certificate_end_timestamp_seconds").is_some());
    assert_eq!(shown(&text), expected);
    let own = |sample: &str| value(&text, &format!("orchestrate_agent_{sample}"));
    assert_eq!(own("verdict{verdict=\"ok\"}"), 1.0);
    assert_eq!(own("version_info{state=\"desired\",version=\"1\"}"), 1.0);
    assert_eq!(own("version_info{state=\"installed\",version=\"1\"}"), 1.0);
    assert_eq!(own("attempts_started_total"), 1.0);
    assert_eq!(own("attempts_ended_total{result=\"proven\"}"), 1.0);
    assert!(own("validations_total{result=\"passed\"}") >= 1.0);
    assert!(own("step_duration_seconds_count{phase=\"apply\",step=\"packages\",result=\"done\"}") >= 1.0);
    let applied = own("step_last_done_timestamp_seconds{phase=\"apply\",step=\"packages\"}");
    assert!(applied > begun && applied < begun + 600.0, "{applied} {begun}");
    let mark = "maintenance_since_timestamp_seconds{how=\"draining\",service=\"web\"}";
    assert!(own(mark) > begun && own(mark) < begun + 600.0);
    assert!(own("store_request_duration_seconds_count{operation=\"commit\",result=\"ok\"}") >= 1.0);
    assert_eq!(own("name_claims_total"), 1.0);
    assert_eq!(own("check_passing{check=\"service:web\",service=\"web\"}"), 1.0);
    assert!(own("dns_queries_total{transport=\"udp\",result=\"noerror\"}") >= 1.0);
    assert!(own("http_requests_total{listener=\"tcp\",code=\"200\"}") >= 1.0);
    check_by_prometheus("metrics::the_agent_shows_what_its_manual_says", &text);
}

#[test]
fn the_alerts_of_the_manual_are_expressions_over_its_metrics() {
    let name = "metrics::the_alerts_of_the_manual_are_expressions_over_its_metrics";
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md"))
        .expect("the manual");
    let part = text.split("\n## ").find(|part| part.starts_with("Alerts")).expect("the heading");
    let expressions: Vec<String> = part
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(expression, _)| expression.replace("\\|", "|"))
        .collect();
    assert!(expressions.len() > 5, "{expressions:?}");
    let known = documented("Agent", "orchestrate_agent_");
    for expression in &expressions {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("orchestrate_agent_")).collect();
        assert!(!metrics.is_empty(), "{expression}");
        metrics.iter().for_each(|metric| assert!(known.contains_key(*metric), "{expression}"));
    }
    if Command::new("promtool").arg("--version").output().is_err() {
        return tests::skip(name, "no promtool on the PATH");
    }
    let rule = |(number, expression): (usize, &String)| {
        let expression = serde_json::Value::from(expression.as_str());
        format!("  - alert: A{number}\n    expr: {expression}\n")
    };
    let rules: String = expressions.iter().enumerate().map(rule).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.yml");
    std::fs::write(&file, format!("groups:\n- name: manual\n  rules:\n{rules}")).expect("written");
    let output = run(Command::new("promtool").args(["check", "rules"]).arg(&file), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn requests_to_a_store_that_is_away_are_counted_as_failures() {
    let host = Host::started("h1", &["http://127.0.0.1:1".to_owned()]);
    let metrics = || host.http_get("/metrics").map(|(_, text)| text).unwrap_or_default();
    let failed = |text: &String| text.contains("operation=\"read\",result=\"unreachable\"");
    let text = wait::until("a failure is counted", || Some(metrics()).filter(failed), metrics);
    assert!(!text.contains("result=\"ok\""), "{text}");
    assert_eq!(value(&text, "orchestrate_agent_store_connected"), 0.0);
}

#[test]
fn an_agent_that_cannot_renew_its_lease_does_not_say_that_it_holds_its_name() {
    let mut etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    let says = |claim: &str, held: f64| {
        let state = host.status().is_some_and(|status| status["claim"]["state"] == claim);
        let metrics = host.http_get("/metrics").map(|(_, text)| text).unwrap_or_default();
        (state && value(&metrics, "orchestrate_agent_name_held") == held).then_some(())
    };
    let is_ready = || host.http_get("/ready").is_some_and(|(code, _)| code == 200);
    wait::until("it holds its name", || says("held", 1.0), || host.describe());
    etcd.kill_member(0);
    // The lease lives for 30 seconds.
    let limit = Duration::from_secs(60);
    wait::until_within(limit, "its lease may have ended", || says("unconfirmed", 0.0), || host.describe());
    assert!(is_ready(), "it goes on to answer from what it knows");
    etcd.start_member(0);
    wait::until_within(limit, "it holds its name again", || says("held", 1.0), || host.describe());
}

#[test]
fn a_client_that_accepts_open_metrics_gets_them() {
    let etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    wait::until("it answers", || host.http_get("/metrics"), || host.describe());
    let get = |accept: &str| {
        let url = format!("http://127.0.0.1:{}/metrics", host.http_port());
        let arguments = ["-sS", "-H", &format!("Accept: {accept}"), "-w", "\n%{content_type}", &url];
        let output = run(Command::new("curl").args(arguments), "");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let open = get("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(open.ends_with("# EOF\n\napplication/openmetrics-text; version=1.0.0; charset=utf-8"), "{open}");
    let text = get("text/plain");
    assert!(
        text.ends_with("\n\ntext/plain; version=0.0.4; charset=utf-8") && !text.contains("# EOF"),
        "{text}"
    );
}

#[test]
fn the_embedded_store_shows_what_its_manual_says() {
    let solo = Solo::in_memory();
    let output = run(Command::new("curl").args(["-sS", &format!("{}/metrics", solo.endpoint())]), "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut expected = documented("Embedded store", "");
    expected.extend(documented("Process", ""));
    assert_eq!(shown(&text), expected);
    for name in expected.keys() {
        assert!(value(&text, name) >= 0.0, "{name}");
    }
    check_by_prometheus("metrics::the_embedded_store_shows_what_its_manual_says", &text);
}
