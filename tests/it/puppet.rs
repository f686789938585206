//! Real Puppet over the catalog that a real agent keeps.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};
use tests::etcd::Etcd;
use tests::host::{Host, Said};
use tests::network::Network;
use tests::process::{self, binary, run};
use tests::store::Store;
use tests::wait;

/// A site of Puppet in the directory of a host.
struct Site<'a> {
    host: &'a Host,
}

fn module() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../hiera-bridge/puppet")
        .canonicalize()
        .expect("the module")
}

impl<'a> Site<'a> {
    fn new(host: &'a Host) -> Self {
        for directory in ["puppet/modules", "puppet/environments/production", "puppet/data", "facts.d"] {
            std::fs::create_dir_all(host.path(directory)).expect("a directory");
        }
        std::os::unix::fs::symlink(module(), host.path("puppet/modules/orchestrate")).expect("a link");
        let text = format!(
            "helper: {}\npath: {}\nsocket: {}\n",
            binary("orchestrate-hiera").display(),
            host.path("state/catalog.json").display(),
            host.path("agent.sock").display(),
        );
        host.write("puppet/orchestrate.yaml", &text);
        Self { host }
    }

    fn arguments(&self) -> Vec<String> {
        let at = |name: &str| self.host.path(name).display().to_string();
        let pairs = [
            ("--confdir", "puppet"),
            ("--vardir", "puppet/var"),
            ("--environmentpath", "puppet/environments"),
            ("--basemodulepath", "puppet/modules"),
            // Facter's own directory is the machine's; this is another that it reads external facts from.
            ("--pluginfactdest", "facts.d"),
        ];
        let mut arguments: Vec<String> =
            pairs.iter().flat_map(|(option, name)| [(*option).to_owned(), at(name)]).collect();
        // As Puppet 8 has it.
        arguments.extend(["--strict=error", "--strict_variables"].map(str::to_owned));
        arguments
    }

    fn puppet(&self, verb: &str, arguments: &[&str]) -> Said {
        let mut command = Command::new("puppet");
        command.arg(verb).args(self.arguments()).args(arguments).env("HOME", self.host.path("puppet"));
        run(&mut command, "").into()
    }

    /// Applies a manifest; its end is its exit code with `--detailed-exitcodes`.
    fn apply(&self, manifest: &str) -> Said {
        self.host.write("puppet/site.pp", manifest);
        let path = self.host.path("puppet/site.pp").display().to_string();
        self.puppet("apply", &["--detailed-exitcodes", "--color=false", &path])
    }

    /// What a manifest makes of `$found`.
    fn found(&self, expressions: &[(&str, &str)]) -> (Value, Said) {
        let entries: String =
            expressions.iter().map(|(name, code)| format!("'{name}' => {code},\n")).collect();
        let file = self.host.path("found.json").display().to_string();
        self.host.remove("found.json");
        let said = self.apply(&format!(
            "file {{ '{file}': content => orchestrate::json({{\n{entries}}}), show_diff => false }}\n"
        ));
        (serde_json::from_str(&self.host.read("found.json")).unwrap_or_default(), said)
    }
}

fn put_service(store: &Store, service: &str, host: &str, number: u8) {
    let record = json!({
        "format": 1, "host": host, "port": 8000 + u16::from(number), "tags": [format!("t{number}")],
        "addresses": [format!("10.0.0.{number}")], "meta": { "rack": "%{lookup('x')}" },
        "interfaces": { "eth0": [format!("10.0.0.{number}"), format!("fd00::{number}")], "lo": ["127.0.0.1"] },
    });
    store.put(&format!("/available_services/{service}/{host}"), &record.to_string());
}

/// A host whose agent follows `web`.
fn follower(etcd: &Etcd) -> Host {
    Host::new("h1", &etcd.endpoints()).with("[catalog]\nfollow = [\"web\"]")
}

fn wait_for_cache(host: &Host, parts: &[&str]) {
    let text = || host.read("state/catalog.json");
    let is = || parts.iter().all(|part| text().contains(part)).then_some(());
    wait::until(&format!("the cached catalog has {parts:?}"), is, || {
        format!("{}\n{}", text(), host.describe())
    });
}

/// Makes the cached catalog look as if the store had been away since.
fn make_old(host: &Host, age: Duration) {
    let file = std::fs::File::options().write(true).open(host.path("state/catalog.json")).expect("a cache");
    file.set_modified(SystemTime::now() - age).expect("a time");
}

const CACHED: [(&str, &str); 12] = [
    ("addresses", "orchestrate::addresses('web')"),
    ("interface", "orchestrate::addresses('web', 'eth0')"),
    ("functional", "orchestrate::addresses('web', undef, 'functional')"),
    ("tagged", "orchestrate::addresses('web', undef, 'addressable', 't2')"),
    ("first", "orchestrate::first_address('web', 'eth0')"),
    ("none", "orchestrate::first_address('nothing') =~ Undef"),
    ("hosts", "orchestrate::hosts('web')"),
    ("dns", "orchestrate::dns('Web.service.consul.')"),
    ("srv", "orchestrate::srv('_web._tcp.service.consul')"),
    ("reverse", "orchestrate::reverse('10.0.0.2')"),
    ("ready", "[orchestrate::ready('web'), orchestrate::ready('web', 2), orchestrate::ready('nothing', 1)]"),
    ("services", "orchestrate::services('web', 'functional')"),
];

#[test]
fn functions_answer_from_the_cached_catalog_in_every_condition() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = follower(&etcd);
    put_service(&store, "web", "w1", 1);
    put_service(&store, "web", "w2", 2);
    put_service(&store, "db", "d1", 9);
    store.put("/orchestrate/health/web/w2", "critical");
    store.put("/orchestrate/config/backups", "off");
    host.start();
    wait_for_cache(&host, &["critical", "10.0.0.1", "10.0.0.9"]);
    let site = Site::new(&host);
    let expected = json!({
        "addresses": ["10.0.0.1", "10.0.0.2"],
        "interface": ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"],
        "functional": ["10.0.0.1"],
        "tagged": ["10.0.0.2"],
        "first": "10.0.0.1",
        "none": true,
        "hosts": ["w1", "w2"],
        "dns": ["10.0.0.1"],
        "srv": [{ "target": "w1.node.consul", "port": 8001, "priority": 1, "weight": 1 }],
        "reverse": "w2.node.consul",
        "ready": [true, false, false],
        // Puppet's own interpolation is not fooled by what another host wrote.
        "services": [{
            "host": "w1", "address": "10.0.0.1", "addresses": ["10.0.0.1"], "port": 8001, "tags": ["t1"],
            "meta": { "rack": "%{lookup('x')}" }, "health": "unchecked",
        }],
    });
    // Fresh; what the agent knows alone as well.
    let live = [
        ("key", "orchestrate::key('backups')"),
        ("no_key", "orchestrate::key('nothing') =~ Undef"),
        ("followed_now", "orchestrate::ready('db')"),
    ];
    let (found, said) = site.found(&[&CACHED[..], &live[..]].concat());
    let mut with_live = expected.clone();
    with_live["key"] = "off".into();
    with_live["no_key"] = true.into();
    with_live["followed_now"] = true.into();
    assert_eq!((found, said.code), (with_live, 2), "{said:?}");
    assert!(!said.err.contains("has not confirmed"), "{said:?}");

    // The agent is down: what is cached is served, what is not is refused with a reason.
    host.stop();
    let (found, said) = Site { host: &host }.found(&CACHED);
    assert_eq!((&found, said.code), (&expected, 2), "{said:?}");
    for (code, why) in [
        ("orchestrate::key('backups')", "the agent could not be asked on"),
        ("orchestrate::ready('nobody-asked')", ""),
        ("orchestrate::dns('www.example.org')", "is not below consul"),
        ("orchestrate::addresses('no such name')", "service"),
        ("orchestrate::addresses('web', undef, undef, undef, { 'paht' => '/x' })", "no such option: paht"),
        ("orchestrate::addresses('web', undef, undef, undef, { 'helper' => '/no/such' })", "/no/such"),
    ] {
        let (_, said) = Site { host: &host }.found(&[("x", code)]);
        let refused = said.code == 1 && said.err.contains(why);
        assert!(if why.is_empty() { said.code == 2 } else { refused }, "{code}: {said:?}");
    }

    // The store was away for hours.
    make_old(&host, Duration::from_secs(7200));
    let site = Site { host: &host };
    let (found, said) = site.found(&CACHED);
    assert_eq!((&found, said.code), (&expected, 2), "{said:?}");
    assert_eq!(said.err.matches("has not confirmed the catalog for 72").count(), 1, "{said:?}");
    let (_, said) = site.found(&[(
        "x",
        "orchestrate::addresses('web', undef, undef, undef, { 'when_older' => 'fail', 'max_age' => 3600 })",
    )]);
    assert!(said.code == 1 && said.err.contains("at most 3600 s are allowed"), "{said:?}");

    // There is none.
    host.remove("state/catalog.json");
    let (_, said) = Site { host: &host }.found(&[("x", "orchestrate::addresses('web')")]);
    assert!(said.code == 1 && said.err.contains("has not read it from the store yet"), "{said:?}");
}

const HIERARCHY: &str = "version: 5
defaults: { datadir: data, data_hash: yaml_data }
hierarchy:
  - name: site data, as the original tool read it
    lookup_key: orchestrate::hiera_yaml
    path: common.yaml
  - name: catalog
    lookup_key: orchestrate::lookup_key
  - name: resolver
    lookup_key: orchestrate::hiera_dns
    options: { nameserver: ['127.0.0.1', PORT], domain: service.consul }
";

const COMMON: &str = "old::array: \"%{lookup_array('services::web::eth0')}\"
old::first: \"%{lookup_array_first_element('services::web::eth0')}\"
old::missing: \"%{lookup_array('services::nothing::eth0')}\"
old::no_array: \"%{lookup_array('plain')}\"
old::loop: \"%{lookup_array('old::loop')}\"
new::array: \"%{alias('services::web::eth0')}\"
new::text: \"http://%{lookup('services::web::eth0.0')}/\"
plain: text
";

#[test]
fn hiera_finds_addresses_and_old_data_files_mean_what_they_meant() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = follower(&etcd);
    put_service(&store, "web", "w1", 1);
    host.start();
    wait_for_cache(&host, &["10.0.0.1"]);
    let site = Site::new(&host);
    let write_hierarchy = |text: &str| {
        host.write("puppet/hiera.yaml", &text.replace("PORT", &host.dns_port().to_string()));
    };
    write_hierarchy(HIERARCHY);
    host.write("puppet/data/common.yaml", COMMON);
    let facts = host.path("facts.yaml").display().to_string();
    host.write("facts.yaml", "site: here\n");
    let lookup = |site: &Site<'_>, key: &str| {
        let said = site.puppet("lookup", &["--node", "n1", "--facts", &facts, "--render-as", "json", key]);
        (said.code, serde_json::from_str::<Value>(&said.out).ok(), said.err)
    };
    // The verb itself; everything else in one compile, because starting Puppet takes a second.
    let (code, value, said) = lookup(&site, "services::web::eth0");
    assert_eq!((code, value), (0, Some(json!(["10.0.0.1", "fd00::1"]))), "{said}");
    assert_eq!(lookup(&site, "services::nothing::eth0").0, 1);
    let or_none = |key: &str| format!("lookup('{key}', {{ 'default_value' => 'none' }})");
    let keys = [
        ("services::web::lo", json!(["127.0.0.1"])),
        ("services::web::eth7", json!("none")),
        ("old::array", json!(["10.0.0.1", "fd00::1"])),
        ("old::first", json!("10.0.0.1")),
        ("old::missing", json!("none")),
        ("new::array", json!(["10.0.0.1", "fd00::1"])),
        ("new::text", json!("http://10.0.0.1/")),
        ("plain", json!("text")),
        // Asked of the agent's own server of names, as a resolver.
        ("dns::web", json!(["10.0.0.1"])),
        ("dns::nothing", json!("none")),
    ];
    let codes: Vec<(&str, String)> = keys.iter().map(|(key, _)| (*key, or_none(key))).collect();
    let expressions: Vec<(&str, &str)> = codes.iter().map(|(key, code)| (*key, code.as_str())).collect();
    let expected: Value = keys
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let (found, said) = site.found(&expressions);
    assert_eq!((&found, said.code), (&expected, 2), "{said:?}");
    for (key, why) in [("old::no_array", "plain is no array"), ("old::loop", "Recursive lookup")] {
        let (_, said) = site.found(&[("x", &or_none(key))]);
        assert!(said.code == 1 && said.err.contains(why), "{key}: {said:?}");
    }
    // A resolver that is away is no missing name.
    host.stop();
    let site = Site { host: &host };
    let (_, said) = site.found(&[("x", &or_none("dns::web"))]);
    assert!(said.code == 1 && said.err.contains("web.service.consul: no resolver answers"), "{said:?}");

    // All at once; with a catalog that is too old, and with none.
    let as_hash = |options: &str| {
        let text = format!(
            "version: 5\nhierarchy:\n  - name: catalog\n    data_hash: orchestrate::data_hash\n    options: {{ {options} }}\n"
        );
        host.write("puppet/hiera.yaml", &text);
    };
    as_hash("max_age: 60");
    let (found, said) = site.found(&[("all", "lookup('services::web::eth0')")]);
    assert_eq!((&found["all"], said.code), (&json!(["10.0.0.1", "fd00::1"]), 2), "{said:?}");
    make_old(&host, Duration::from_secs(7200));
    as_hash("max_age: 60, when_older: fail");
    let (_, said) = site.found(&[("all", "lookup('services::web::eth0')")]);
    assert!(said.code == 1 && said.err.contains("at most 60 s are allowed"), "{said:?}");
    host.remove("state/catalog.json");
    let (_, said) = site.found(&[("x", &or_none("services::web::eth0"))]);
    assert!(said.code == 1 && said.err.contains("there is no catalog"), "{said:?}");
    as_hash("when_missing: not_found");
    let (found, said) = site.found(&[("x", &or_none("services::web::eth0"))]);
    assert_eq!((&found["x"], said.code), (&json!("none"), 2), "{said:?}");
}

#[test]
fn a_run_waits_for_services_and_skips_only_what_needs_them() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = follower(&etcd);
    put_service(&store, "web", "w1", 1);
    store.put("/orchestrate/config/schema", "go");
    host.start();
    wait_for_cache(&host, &["10.0.0.1"]);
    let site = Site::new(&host);
    let file = |name: &str| host.path(name).display().to_string();
    let manifest = format!(
        "file {{ '{}': content => 'x' }}
         orchestrate_blocker {{ 'web': count => 2, tries => 200, try_sleep => 0.1 }} -> file {{ '{}': content => 'x' }}
         orchestrate_blocker {{ 'nothing': tries => 2, try_sleep => 0.1 }} -> file {{ '{}': content => 'x' }}
         orchestrate_gate {{ 'schema': value => 'go' }} -> file {{ '{}': content => 'x' }}
         orchestrate_gate {{ 'other': value => 'go' }} -> file {{ '{}': content => 'x' }}
         orchestrate_fail {{ 'no seed yet': }} -> file {{ '{}': content => 'x' }}",
        file("apart"),
        file("after-web"),
        file("after-nothing"),
        file("after-schema"),
        file("after-other"),
        file("after-fail"),
    );
    // Looks and does not wait.
    host.write("puppet/noop.pp", &manifest);
    let said = site.puppet("apply", &["--noop", "--color=false", &file("puppet/noop.pp")]);
    assert!(said.code == 0 && said.out.contains("should be 'ready' (noop)"), "{said:?}");
    // The second comes while the run waits for it.
    let said = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.apply(&manifest));
        wait::until("the run is under way", || host.path("apart").exists().then_some(()), || host.describe());
        assert!(!host.path("after-web").exists());
        put_service(&store, "web", "w2", 2);
        run.join().expect("the run")
    });
    let there = |name: &str| host.path(name).exists();
    let names = ["after-web", "after-nothing", "after-schema", "after-other", "after-fail", "apart"];
    assert_eq!(names.map(there), [true, false, true, false, false, true], "{said:?}");
    // Changes and failures.
    assert_eq!(said.code, 6, "{said:?}");
    for why in [
        "gave up waiting for 1 of nothing functional after 2 looks",
        "other is nil, not \"go\"",
        "no seed yet",
        "Skipping because of failed dependencies",
    ] {
        assert!(said.out.contains(why) || said.err.contains(why), "{why}: {said:?}");
    }
    // With no agent nothing is let through.
    host.stop();
    let site = Site { host: &host };
    let said = site.apply("orchestrate_blocker { 'web': tries => 2, try_sleep => 0.1 }");
    assert!(said.code == 4 && said.err.contains("the agent could not be asked on"), "{said:?}");
    let said = site.apply("orchestrate_gate { 'schema': value => 'go' }");
    assert!(said.code == 4 && said.err.contains("the agent could not be asked on"), "{said:?}");
}

/// A host whose steps are runs of Puppet: the whole site to apply, what is tagged to converge.
fn run_by_puppet(host: Host, role: &str) -> Host {
    let site = Site::new(&host);
    std::fs::create_dir_all(host.path("services.d")).expect("a directory");
    let at = |name: &str| host.path(name).display().to_string();
    let command = |more: &[&str]| {
        let mut words = vec!["/usr/bin/puppet".to_owned(), "apply".into(), "--detailed-exitcodes".into()];
        words.extend(site.arguments());
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.push(at("puppet/site.pp"));
        format!("{words:?}")
    };
    let settings = format!(
        "facts_file = \"{facts}\"\nrole = \"{role}\"\nenvironment = {{ HOME = \"{home}\" }}\n\
         [[apply]]\nname = \"puppet\"\ncommand = {apply}\ndone_codes = [0, 2]\n\
         [[converge]]\nname = \"puppet\"\ncommand = {converge}\ndone_codes = [0, 2]\n\
         [[validate]]\nname = \"check\"\ncommand = [\"/usr/bin/test\", \"-s\", \"{whole}\"]\n",
        facts = at("facts.d/orchestrate.json"),
        home = at("puppet"),
        apply = command(&[]),
        converge = command(&["--tags", "follows_catalog"]),
        whole = at("whole"),
    );
    host.write("puppet/site.pp", &site_of(&host));
    host.with(&settings)
}

/// One site for all: every host has a file of the version, and the service of its role; the balancer's file follows the
/// members.
fn site_of(host: &Host) -> String {
    let at = |name: &str| host.path(name).display().to_string();
    format!(
        "$fact = $facts['orchestrate']
         file {{ '{whole}': content => \"${{fact['version']['desired']}}\\n\" }}
         exec {{ '/bin/sh -c \"echo run >> {runs}\"': }}
         orchestrate::service {{ $fact['role']:
           port       => 80,
           tags       => [\"v${{fact['version']['desired']}}\"],
           check_args => ['/usr/bin/test', '-s', '{whole}'],
           interval   => '200ms',
           directory  => '{services}',
         }}
         class balancer {{
           tag 'follows_catalog'
           $members = orchestrate::services('web').map |$found| {{ \"server ${{found['host']}} ${{found['address']}}:${{found['port']}}\" }}
           file {{ '{backends}': content => join($members + [''], \"\\n\") }}
         }}
         if $fact['role'] == 'balancer' {{ include balancer }}\n",
        whole = at("whole"),
        runs = at("runs"),
        services = at("services.d"),
        backends = at("backends"),
    )
}

fn wait_for_text(host: &Host, name: &str, expected: &str) {
    let is = || (host.read(name) == expected).then_some(());
    wait::until_within(WITHIN, &format!("{name} is {expected:?}"), is, || {
        format!("{:?}\n{}", host.read(name), host.describe())
    });
}

/// Several runs of Puppet beside each other on few cores.
const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn three_hosts_are_led_from_version_to_version_by_puppet_and_the_balancer_follows_its_members() {
    let name =
        "puppet::three_hosts_are_led_from_version_to_version_by_puppet_and_the_balancer_follows_its_members";
    if !process::in_own_network(name) {
        return;
    }
    let (network, etcd) = (Network::new(), Etcd::single_real());
    let (endpoints, store) = ([network.endpoint(&etcd.endpoint(0))], etcd.store());
    // An operator, on the machine of the store.
    let operator = Host::new("operator", &etcd.endpoints());
    let command = |arguments: &[&str]| operator.command(arguments, "");
    let host = |name: &str, role: &str, number: u8| {
        run_by_puppet(Host::new(name, &endpoints), role).at(&network.place(number))
    };
    let mut balancer = host("lb1", "balancer", 1)
        .with("[[requires]]\nservice = \"web\"\ncount = 1\nlevel = \"addressable\"\nphase = \"converge\"\n");
    let mut web = [host("w1", "web", 2), host("w2", "web", 3)];
    let settled = |host: &Host, version: &str| {
        let is = || (host.read("current_version").trim() == version).then_some(());
        wait::until_within(WITHIN, &format!("{} is at {version}", host.name), is, || host.describe());
    };
    let trigger = |version: &str| {
        let said = command(&["trigger_update", version]);
        assert_eq!(said.code, 0, "{said:?}");
    };

    // Version 1: one web host, the balancer waits for it.
    trigger("1");
    balancer.start();
    web[0].start();
    settled(&web[0], "1");
    wait_for_text(&balancer, "backends", "server w1 10.77.0.2:80\n");
    settled(&balancer, "1");
    // What Puppet wrote was picked up, and is checked.
    balancer.wait_for_name(&["v1.web.service.consul"], &["10.77.0.2"]);
    balancer.wait_for_name(&["balancer.service.consul"], &["10.77.0.1"]);
    let fact: Value = serde_json::from_str(&balancer.read("facts.d/orchestrate.json")).expect("JSON");
    let fact = &fact["orchestrate"];
    assert_eq!((&fact["role"], &fact["version"]["desired"]), (&json!("balancer"), &json!("1")));

    // Another joins: only the tagged part is applied, and the file follows without an update.
    let runs = || balancer.read("runs").lines().count();
    let whole_runs = runs();
    web[1].start();
    wait_for_text(&balancer, "backends", "server w1 10.77.0.2:80\nserver w2 10.77.0.3:80\n");
    settled(&web[1], "1");
    assert_eq!(runs(), whole_runs, "only the tagged part was applied");

    // Version 2 does not compile on one host: that one fails with Puppet's own words, the others go on.
    web[1].write("puppet/site.pp", "this is no manifest {");
    trigger("2");
    settled(&balancer, "2");
    settled(&web[0], "2");
    let report = || store.get("/orchestrate/reports/w2").unwrap_or_default();
    let says = || report().contains("Syntax error").then_some(());
    wait::until_within(WITHIN, "the report has Puppet's words", says, || {
        format!("{}\n{}", report(), web[1].describe())
    });
    assert_eq!(web[1].read("current_version").trim(), "1");
    let hosts = ["verify_hosts", "2", "lb1", "w1", "w2"];
    assert_eq!(command(&hosts).code, 1);
    // It works as before, and is balanced to.
    assert_eq!(balancer.read("backends").lines().count(), 2);
    balancer.wait_for_name(&["v1.web.service.consul"], &["10.77.0.3"]);

    // Recovery.
    web[1].write("puppet/site.pp", &site_of(&web[1]));
    assert_eq!(command(&["retry", "w2"]).code, 0);
    settled(&web[1], "2");
    balancer.wait_for_name(&["v1.web.service.consul"], &[]);
    let all = || (command(&hosts).code == 0).then_some(());
    wait::until_within(WITHIN, "all are at 2", all, || web[1].describe());

    // A host is taken out: the file follows.
    web[1].stop();
    assert_eq!(command(&["hosts", "decommission", "w2", "--force"]).code, 0);
    wait_for_text(&balancer, "backends", "server w1 10.77.0.2:80\n");
}

#[test]
fn the_class_writes_settings_that_the_agent_takes_and_keeps_the_old_ones_else() {
    let host = Host::new("h1", &[]);
    let site = Site::new(&host);
    let directory = host.path("etc").display().to_string();
    std::fs::create_dir(&directory).expect("a directory");
    let manifest = |settings: &str| {
        format!(
            "class {{ 'orchestrate::agent':
               settings => {settings}, manage_package => false, manage_service => false,
               directory => '{directory}', program => '{}',
             }}",
            binary("orchestrate-agent").display()
        )
    };
    let good =
        "{ 'role' => 'web', 'store' => { 'endpoints' => ['http://etcd1:2379'] }, 'dns' => { 'ttl' => '7s' },
                  'apply' => [{ 'name' => 'one', 'command' => ['/bin/true'], 'done_codes' => [0, 2] }] }";
    let said = site.apply(&manifest(good));
    assert_eq!(said.code, 2, "{said:?}");
    let text = host.read("etc/agent.d/puppet.toml");
    assert!(text.contains("[[apply]]\nname = \"one\"") && text.starts_with("role = \"web\"\n"), "{text}");
    assert_eq!(site.apply(&manifest(good)).code, 0, "nothing changes the second time");
    let said = site.apply(&manifest("{ 'dns' => { 'tll' => '7s' } }"));
    assert!(said.code == 4 && said.err.contains("did you mean `ttl`"), "{said:?}");
    assert_eq!(host.read("etc/agent.d/puppet.toml"), text);
}

#[test]
fn the_ruby_code_does_what_its_specification_says() {
    // In a copy: rspec-puppet makes directories where it runs.
    let directory = tempfile::tempdir().expect("a directory");
    let copied = run(Command::new("cp").arg("-R").arg(module()).arg(directory.path()), "");
    assert!(copied.status.success());
    let mut command = Command::new("rspec");
    command
        .current_dir(directory.path().join("puppet"))
        .env("ORCHESTRATE_HIERA", binary("orchestrate-hiera"))
        .arg("--no-color");
    let said: Said = run(&mut command, "").into();
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn samples_of_the_documents_are_accepted_by_puppet() {
    let text = std::fs::read_to_string(module().join("../../docs/puppet.md")).expect("the document");
    let directory = tempfile::tempdir().expect("a directory");
    let blocks: Vec<&str> =
        text.split("```puppet\n").skip(1).map(|block| block.split("```").next().expect("an end")).collect();
    assert!(blocks.len() >= 2);
    let manifests = module().join("manifests");
    let mut files: Vec<PathBuf> = ["agent.pp", "service.pp"].map(|name| manifests.join(name)).into();
    for (number, block) in blocks.iter().enumerate() {
        let path = directory.path().join(format!("sample{number}.pp"));
        std::fs::write(&path, block).expect("written");
        files.push(path);
    }
    let said: Said = run(Command::new("puppet").args(["parser", "validate"]).args(files), "").into();
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
}
