//! Real Puppet with the catalog that a real agent keeps.

mod newer;
mod steps;
mod values;

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use tests::host::{CommandOutput, Host};
use tests::process::{binary, run};

/// A Puppet site in the directory of a host.
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
            // Facter's own directory belongs to the machine; this is another one from which Puppet
            // reads external facts.
            ("--pluginfactdest", "facts.d"),
        ];
        let mut arguments: Vec<String> =
            pairs.iter().flat_map(|(option, name)| [(*option).to_owned(), at(name)]).collect();
        // The settings that Puppet 8 has by default.
        arguments.extend(["--strict=error", "--strict_variables"].map(str::to_owned));
        arguments
    }

    fn puppet(&self, verb: &str, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new("puppet");
        command.arg(verb).args(self.arguments()).args(arguments).env("HOME", self.host.path("puppet"));
        run(&mut command, "").into()
    }

    /// Applies a manifest with `--detailed-exitcodes`.
    fn apply(&self, manifest: &str) -> CommandOutput {
        self.host.write("puppet/site.pp", manifest);
        let path = self.host.path("puppet/site.pp").display().to_string();
        self.puppet("apply", &["--detailed-exitcodes", "--color=false", &path])
    }

    /// Evaluates expressions in a manifest; returns their values by name, and the output of Puppet.
    fn found(&self, expressions: &[(&str, &str)]) -> (Value, CommandOutput) {
        let entries: String =
            expressions.iter().map(|(name, code)| format!("'{name}' => {code},\n")).collect();
        let file = self.host.path("found.json").display().to_string();
        self.host.remove("found.json");
        let result = self.apply(&format!(
            "file {{ '{file}': content => orchestrate::json({{\n{entries}}}), show_diff => false }}\n"
        ));
        (serde_json::from_str(&self.host.read("found.json")).unwrap_or_default(), result)
    }
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
    let result = site.apply(&manifest(good));
    assert_eq!(result.code, 2, "{result:?}");
    let text = host.read("etc/agent.d/puppet.toml");
    assert!(text.contains("[[apply]]\nname = \"one\"") && text.starts_with("role = \"web\"\n"), "{text}");
    assert_eq!(site.apply(&manifest(good)).code, 0, "nothing changes the second time");
    let result = site.apply(&manifest("{ 'dns' => { 'tll' => '7s' } }"));
    assert!(result.code == 4 && result.err.contains("did you mean `ttl`"), "{result:?}");
    assert_eq!(host.read("etc/agent.d/puppet.toml"), text);
}

#[test]
fn the_ruby_code_does_what_its_specification_says() {
    // The test runs in a copy, because rspec-puppet creates directories where it runs.
    let directory = tempfile::tempdir().expect("a directory");
    let copied = run(Command::new("cp").arg("-R").arg(module()).arg(directory.path()), "");
    assert!(copied.status.success());
    let mut command = Command::new("rspec");
    command
        .current_dir(directory.path().join("puppet"))
        .env("ORCHESTRATE_HIERA", binary("orchestrate-hiera"))
        .arg("--no-color");
    let result: CommandOutput = run(&mut command, "").into();
    assert_eq!(result.code, 0, "{result:?}");
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
    let result: CommandOutput =
        run(Command::new("puppet").args(["parser", "validate"]).args(files), "").into();
    assert_eq!((result.code, result.err.as_str()), (0, ""), "{result:?}");
}
