//! Files that follow the catalog.

use serde_json::Value;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::binary;
use tests::wait;

const TEMPLATE: &str =
    "{% for i in service(\"web\") %}\nserver {{ i.host }} {{ i.address }}:{{ i.port }}\n{% endfor %}\n";

fn balancer(etcd: &Etcd) -> Host {
    let host = Host::new("lb1", &etcd.endpoints());
    let at = |name: &str| host.path(name).display().to_string();
    let text = format!(
        "[catalog]\nhiera_file = \"{}\"\n[[template]]\nsource = \"{}\"\ntarget = \"{}\"\ndebounce = \"50ms\"\n\
         check = [\"{}\", \"{{file}}\"]\non_change = [\"{}\"]\n",
        at("services.yaml"),
        at("backends.j2"),
        at("backends.conf"),
        at("check"),
        at("reload"),
    );
    let host = host.with(&text);
    host.write("backends.j2", TEMPLATE);
    // The check refuses a text with a bad host; the command logs each text that was accepted.
    host.write_executable("check", "#!/bin/sh\n! grep -q bad \"$1\"\n");
    let log = at_path(&host, "reloads");
    let broken = at_path(&host, "reload-broken");
    host.write_executable(
        "reload",
        &format!("#!/bin/sh\ncat \"$ORCHESTRATE_FILE\" >> {log}\necho -- >> {log}\n! test -e {broken}\n"),
    );
    host
}

fn at_path(host: &Host, name: &str) -> String {
    host.path(name).display().to_string()
}

fn wait_for_file(host: &Host, name: &str, expected: &str) {
    let read = || std::fs::read_to_string(host.path(name)).unwrap_or_default();
    let is = || (read() == expected).then_some(());
    wait::until(&format!("{name} is {expected:?}"), is, || format!("{:?}\n{}", read(), host.describe()));
}

fn problem(host: &Host) -> String {
    let status = host.status().unwrap_or_default();
    status["templates"].to_string()
}

#[test]
fn a_file_follows_is_checked_first_and_comes_back_when_its_command_fails() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let put = |host: &str, address: &str| {
        store.put(
            &format!("/available_services/web/{host}"),
            &format!(r#"{{"addresses": ["{address}"], "port": 80}}"#),
        );
    };
    put("w1", "10.7.0.1");
    let mut host = balancer(&etcd);
    host.start();
    wait_for_file(&host, "backends.conf", "server w1 10.7.0.1:80\n");
    put("w2", "10.7.0.2");
    let two = "server w1 10.7.0.1:80\nserver w2 10.7.0.2:80\n";
    wait_for_file(&host, "backends.conf", two);
    wait_for_file(&host, "services.yaml", "{}\n");
    store.put("/available_services/web/w1", r#"{"eth0": "10.7.0.1"}"#);
    wait_for_file(
        &host,
        "services.yaml",
        "services::web::eth0: [10.7.0.1]\nservices_all::web::eth0: [10.7.0.1]\n",
    );
    // The template may be rendered after the YAML: without this wait, the next change could
    // overtake it, and the text before it would be taken for the text after it.
    wait_for_file(&host, "backends.conf", "server w1 10.7.0.1:None\nserver w2 10.7.0.2:80\n");
    put("w1", "10.7.0.1");
    wait_for_file(&host, "backends.conf", two);
    // The check refuses the new text.
    put("bad", "10.7.0.9");
    let refused = || problem(&host).contains("its check refuses the new text").then_some(());
    wait::until("the check refuses", refused, || host.describe());
    assert_eq!(host.read("backends.conf"), two);
    store.delete("/available_services/web/bad");
    // The command fails: the old file is put back, and the command runs again with it.
    host.write("reload-broken", "");
    put("w3", "10.7.0.3");
    let back = || problem(&host).contains("on_change failed, the old file is back").then_some(());
    wait::until("the old file is back", back, || host.describe());
    assert_eq!(host.read("backends.conf"), two);
    assert!(host.read("reloads").ends_with(&format!("{two}--\n")));
    host.remove("reload-broken");
    put("w4", "10.7.0.4");
    wait_for_file(&host, "backends.conf", &format!("{two}server w3 10.7.0.3:80\nserver w4 10.7.0.4:80\n"));
    let up_to_date = |s: &Value| s["templates"][at_path(&host, "backends.conf")]["up_to_date"] == true;
    wait::until("all is well", || host.status().filter(up_to_date), || host.describe());
}

#[test]
fn a_text_that_was_refused_is_shown_to_the_fleet_and_tried_again() {
    let etcd = Etcd::single();
    etcd.store().put("/available_services/web/w1", r#"{"addresses": ["10.7.0.1"], "port": 80}"#);
    let mut host = balancer(&etcd);
    host.write("reload-broken", "");
    host.start();
    let problem = format!("template: {}: on_change failed", at_path(&host, "backends.conf"));
    let answer = || host.command(&["why", "lb1"], "").out;
    let shown = || answer().contains(&problem).then_some(());
    wait::until("the fleet sees the problem", shown, || answer() + &host.describe());
    let status = host.command(&["status"], "").out;
    assert!(status.contains("\nPROBLEM   HOST  REASON\ntemplate  lb1   "), "{status}");
    // The text does not change, only what kept the command from succeeding.
    host.remove("reload-broken");
    wait_for_file(&host, "backends.conf", "server w1 10.7.0.1:80\n");
    let gone = || (!answer().contains("problem:")).then_some(());
    wait::until("the problem is gone", gone, || answer() + &host.describe());
}

#[test]
fn a_command_that_leaves_processes_is_named_in_the_log() {
    let etcd = Etcd::single();
    let mut host = balancer(&etcd);
    host.write_executable("reload", "#!/bin/sh\nsleep 600 &\n");
    host.start();
    etcd.store().put("/available_services/web/w1", r#"{"addresses": ["10.0.0.1"], "port": 80}"#);
    wait_for_file(&host, "backends.conf", "server w1 10.0.0.1:80\n");
    let warning = || {
        let log = host.read("agent.log");
        let is_warning = |line: &&str| line.contains(" WARN ") && line.contains("left processes");
        log.lines().find(is_warning).map(str::to_owned)
    };
    let warning = wait::until("it is warned of", warning, || host.describe());
    assert!(warning.contains(&at_path(&host, "backends.conf")), "{warning}");
    assert!(warning.contains(&at_path(&host, "reload")), "{warning}");
}

#[test]
fn a_command_that_was_cut_off_runs_at_the_next_start() {
    let etcd = Etcd::single();
    etcd.store().put("/available_services/web/w1", r#"{"addresses": ["10.7.0.1"], "port": 80}"#);
    let mut host = balancer(&etcd);
    let (begun, log) = (at_path(&host, "begun"), at_path(&host, "reloads"));
    host.write_executable("reload", &format!("#!/bin/sh\ntouch {begun}\nsleep 60\n"));
    host.start();
    wait::until("the command has begun", || host.path("begun").exists().then_some(()), || host.describe());
    host.stop();
    host.write_executable("reload", &format!("#!/bin/sh\ncat \"$ORCHESTRATE_FILE\" > {log}\n"));
    host.start();
    wait_for_file(&host, "reloads", "server w1 10.7.0.1:80\n");
    let gone = || (!host.path(".backends.conf.pending").exists()).then_some(());
    wait::until("nothing is pending", gone, || host.describe());
}

#[test]
fn an_outage_of_the_store_changes_no_file_and_runs_nothing() {
    let mut etcd = Etcd::single();
    let store = etcd.store();
    let mut web = Host::new("w1", &etcd.endpoints());
    web.write_switched_service("web", 80);
    web.write("web-works", "");
    web.start();
    let mut host = balancer(&etcd);
    host.start();
    wait_for_file(&host, "backends.conf", "server w1 127.0.0.1:80\n");
    let listed = || host.read("services.yaml").contains("services::web::lo: [127.0.0.1").then_some(());
    wait::until("the YAML names the service", listed, || host.describe());
    // The file is written before its command has run.
    let reloaded = || host.read("reloads").ends_with("server w1 127.0.0.1:80\n--\n").then_some(());
    wait::until("the command has run", reloaded, || host.describe());
    drop(store);
    let modified = |name: &str| std::fs::metadata(host.path(name)).unwrap().modified().unwrap();
    let before = (modified("backends.conf"), modified("services.yaml"), host.read("reloads"));
    etcd.kill_member(0);
    let away = |s: &Value| s["catalog"]["connected"] == false;
    wait::until("the outage is seen", || host.status().filter(away), || host.describe());
    for restart in [false, true] {
        if restart {
            host.kill();
            host.start();
        }
        host.wait_for_name(&["web.service.consul"], &["127.0.0.1"]);
        let same = || {
            let modified = |name: &str| std::fs::metadata(host.path(name)).unwrap().modified().unwrap();
            (modified("backends.conf"), modified("services.yaml"), host.read("reloads")) == before
        };
        wait::stays("nothing changes", std::time::Duration::from_secs(3), same, || host.describe());
    }
    etcd.start_member(0);
    let back = |s: &Value| s["catalog"]["connected"] == true;
    wait::until("it is back", || host.status().filter(back), || host.describe());
    assert_eq!(host.read("reloads"), before.2);
    assert_eq!(host.read("backends.conf"), "server w1 127.0.0.1:80\n");
}

#[test]
fn a_value_that_an_operator_keeps_comes_into_files_and_a_bad_one_leaves_them_as_they_are() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("h1", &etcd.endpoints());
    let at = |name: &str| at_path(&host, name);
    let text = format!(
        "[[template]]\nsource = \"{}\"\ntarget = \"{}\"\ndebounce = \"50ms\"\n",
        at("motd.j2"),
        at("motd")
    );
    let mut host = host.with(&text);
    host.write("motd.j2", "{{ key(\"motd\", default=\"none\") }}\n");
    host.start();
    wait_for_file(&host, "motd", "none\n");
    let key = "/orchestrate/config/motd";
    store.put(key, "welcome");
    wait_for_file(&host, "motd", "welcome\n");
    store.put(key, "two\nlines");
    wait_for_file(&host, "motd", "two\nlines\n");
    store.put(key, "\u{1b}[2J");
    let target = host.path("motd").display().to_string();
    let refused = |s: &Value| {
        let problem = s["templates"][&target]["trouble"].as_str().unwrap_or_default();
        problem.contains("the value of motd") && problem.contains("control character")
    };
    wait::until("it is refused", || host.status().filter(refused), || host.describe());
    assert_eq!(host.read("motd"), "two\nlines\n");
    store.delete(key);
    wait_for_file(&host, "motd", "none\n");
    // Without a default a missing key is an error, and the file stays as it is.
    host.write("motd.j2", "{{ key(\"motd\") }}\n");
    let missing =
        |s: &Value| s["templates"][&target]["trouble"].as_str().is_some_and(|problem| problem.contains(key));
    wait::until("it is missed", || host.status().filter(missing), || host.describe());
    assert_eq!(host.read("motd"), "none\n");
}

#[test]
fn every_command_of_an_agent_has_the_same_variables() {
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/available_services/web/w1", r#"{"addresses": ["10.7.0.1"], "port": 80}"#);
    let host = Host::new("lb1", &etcd.endpoints());
    let at = |name: &str| at_path(&host, name);
    let text = format!(
        "[environment]\nGIVEN = \"by settings\"\n[services]\ndirectories = [{services:?}]\naddresses = [\"10.9.0.1\"]\n\
         [[template]]\nsource = {source:?}\ntarget = {target:?}\ndebounce = \"50ms\"\ncheck = [{check:?}]\n\
         on_change = [{change:?}]\n[[validate]]\nname = \"told\"\ncommand = [{step:?}]\n\
         [[requires]]\nservice = \"web\"\nlevel = \"addressable\"\nphase = \"converge\"\nprobe = [{probe:?}]\n",
        services = at("services.d"),
        source = at("backends.j2"),
        target = at("backends.conf"),
        check = at("template-check"),
        change = at("template-change"),
        step = at("step"),
        probe = at("probe"),
    );
    // Each command writes its variables, and asks the store as the command line does.
    let orchestrate = binary("orchestrate").display().to_string();
    let commands = ["template-check", "template-change", "step", "probe", "service-check"];
    for name in commands {
        let file = at(&format!("{name}.told"));
        let script = format!(
            "#!/bin/sh\n{{ env; echo \"version=$({orchestrate} current_version)\"; }} >{file}.new\n\
             mv {file}.new {file}\n"
        );
        host.write_executable(name, &script);
    }
    host.write("backends.j2", TEMPLATE);
    let check = at("service-check");
    let mut host = host.with(&text);
    host.write_service(
        "own.toml",
        &format!(
            "[[service]]\nname = \"own\"\n[[service.check]]\ncommand = [{check:?}]\ninterval = \"1s\"\n"
        ),
    );
    store.put("/current_version", "v1");
    host.start();
    host.wait_for_listing(&store, "v1");
    for name in commands {
        let ran = || {
            let text = std::fs::read_to_string(host.path(&format!("{name}.told"))).ok()?;
            text.contains("version=v1\n").then_some(text)
        };
        let variables = wait::until(&format!("{name} ran"), ran, || host.describe());
        for variable in [
            "PATH=",
            "LANG=",
            "HOME=/",
            "USER=",
            "LOGNAME=",
            "SHELL=/",
            "ORCHESTRATE_ENDPOINTS=http",
            "ORCHESTRATE_NAMESPACE=",
            "ORCHESTRATE_HOSTNAME=lb1\n",
            "ORCHESTRATE_STATE_DIR=/",
            "ORCHESTRATE_LOCAL_VERSION_FILE=/",
            "ORCHESTRATE_SOCKET=/",
            "GIVEN=by settings\n",
        ] {
            assert!(
                format!("\n{variables}").contains(&format!("\n{variable}")),
                "{name}: no {variable} in\n{variables}"
            );
        }
    }
}

#[test]
fn service_files_and_templates_may_be_links_as_in_a_config_map() {
    let etcd = Etcd::single();
    etcd.store().put("/available_services/web/w1", r#"{"addresses": ["10.7.0.1"], "port": 80}"#);
    let mut host = balancer(&etcd);
    let services = host.path("services.d");
    let link = |to: &str, from: &str| {
        std::os::unix::fs::symlink(to, services.join(format!("{from}.new"))).expect("a link");
        std::fs::rename(services.join(format!("{from}.new")), services.join(from)).expect("in its place");
    };
    for (version, port) in [("..v1", 81), ("..v2", 82)] {
        std::fs::create_dir_all(services.join(version)).expect("a directory");
        let text = format!(r#"{{"service": {{"name": "own", "port": {port}}}}}"#);
        std::fs::write(services.join(version).join("own.json"), text).expect("written");
    }
    link("..v1", "..data");
    link("..data/own.json", "own.json");
    std::fs::rename(host.path("backends.j2"), host.path("backends-1.j2")).expect("renamed");
    std::os::unix::fs::symlink("backends-1.j2", host.path("backends.j2")).expect("a link");
    host.start();
    wait_for_file(&host, "backends.conf", "server w1 10.7.0.1:80\n");
    host.wait_for_name(&["own.service.consul", "SRV"], &["1 1 81 lb1.node.consul."]);
    link("..v2", "..data");
    host.wait_for_name(&["own.service.consul", "SRV"], &["1 1 82 lb1.node.consul."]);
}
