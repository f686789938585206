//! The programs and files that settings name, and what follows if one is not as it has to be.
//!
//! Whoever looks at them is outside of this crate. On the host itself a program that is missing is a
//! warning: settings are usually installed before programs, by Puppet or by the first steps, and
//! the check of the settings must not keep the program from being installed. A program that exists
//! and would be refused is an error. The files by which the agent reaches the store must exist,
//! because no step runs before. On another machine nothing is known about the host, so everything
//! is a warning.

use crate::Settings;
use crate::lint::Severity;
use std::path::{Path, PathBuf};

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A program that the agent runs.
    Program,
    /// A file that the agent reads when it exists, for example a template.
    Source,
    /// A directory that the agent reads when it exists.
    Directory,
    /// A file without which the agent does not reach the store.
    Store,
}

/// A file that a setting names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The path of the setting, for example `apply.0.command`.
    pub setting: String,
    pub path: PathBuf,
    /// What it is for.
    pub purpose: Purpose,
}

/// What was found under a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// A regular file; the field is true if somebody may execute it.
    File(bool),
    Directory,
    /// Something that the agent would not use, for this reason.
    Refused(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// On the host that has the settings.
    OnTheHost,
    /// On a machine that may be another one.
    Anywhere,
}

/// Returns the files that settings name, without those of the validation directory.
pub fn named_files(settings: &Settings) -> Vec<NamedFile> {
    let mut files = Vec::new();
    let mut add = |setting: String, path: &Path, purpose| {
        files.push(NamedFile { setting, path: path.to_owned(), purpose });
    };
    let Settings { store, services, templates, policy, .. } = settings;
    for (name, path) in [
        ("store.endpoints_file", &store.endpoints_file),
        ("store.cacert", &store.cacert),
        ("store.cert", &store.cert),
        ("store.key", &store.key),
        ("store.password_file", &store.password_file),
    ] {
        path.iter().for_each(|path| add(name.to_owned(), path, Purpose::Store));
    }
    services.directories.iter().for_each(|path| add("services.directories".into(), path, Purpose::Directory));
    services.profile_list.iter().for_each(|path| add("services.profile_list".into(), path, Purpose::Source));
    let mut program = |setting: String, command: &[String]| {
        command
            .first()
            .into_iter()
            .for_each(|program| add(setting.clone(), Path::new(program), Purpose::Program));
    };
    let phases = [
        ("prefetch", &policy.steps.prefetch),
        ("apply", &policy.steps.apply),
        ("converge", &policy.steps.converge),
        ("validate", &policy.steps.validate),
        ("on_suspect", &policy.steps.on_suspect),
    ];
    for (phase, steps) in phases {
        for (number, step) in steps.iter().enumerate() {
            program(format!("{phase}.{number}.command"), &step.command);
        }
    }
    for (number, need) in policy.requires.iter().enumerate() {
        need.probe.iter().for_each(|command| program(format!("requires.{number}.probe"), command));
    }
    for (number, template) in templates.iter().enumerate() {
        template.check.iter().for_each(|command| program(format!("template.{number}.check"), command));
        template
            .on_change
            .iter()
            .for_each(|command| program(format!("template.{number}.on_change"), command));
    }
    for (number, template) in templates.iter().enumerate() {
        add(format!("template.{number}.source"), &template.source, Purpose::Source);
    }
    files
}

/// Returns what is wrong with a file, and how severe it is; `None` if nothing is.
pub fn assess(path: &Path, purpose: Purpose, seen: &Seen, place: Where) -> Option<(Severity, String)> {
    let shown = path.display();
    let (severity, what) = match (seen, purpose) {
        (Seen::Nothing, _) if place == Where::Anywhere => {
            (Severity::Warning, format!("{shown} is not on this machine"))
        }
        (Seen::Nothing, Purpose::Program) => {
            (Severity::Warning, format!("{shown} does not exist: it cannot run until something installs it"))
        }
        (Seen::Nothing, Purpose::Source | Purpose::Directory) => {
            (Severity::Warning, format!("{shown} does not exist: it counts for nothing until it does"))
        }
        (Seen::Nothing, Purpose::Store) => (Severity::Error, format!("{shown} does not exist")),
        (Seen::Refused(why), _) => (Severity::Error, why.clone()),
        (Seen::File(true), Purpose::Program) => return None,
        (Seen::File(false), Purpose::Program) => (Severity::Error, format!("{shown} is not executable")),
        (Seen::File(_), Purpose::Source | Purpose::Store) => return None,
        (Seen::Directory, Purpose::Directory) => return None,
        (Seen::File(_), Purpose::Directory) => (Severity::Error, format!("{shown} is not a directory")),
        (Seen::Directory, _) => (Severity::Error, format!("{shown} is a directory, not a file")),
    };
    match place {
        Where::OnTheHost => Some((severity, what)),
        Where::Anywhere => Some((Severity::Warning, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    #[test]
    fn every_setting_that_names_a_file_is_known() {
        let text = "[store]\nendpoints_file = \"/a\"\ncacert = \"/b\"\n[services]\ndirectories = [\"/c\"]\n\
            [[apply]]\nname = \"a\"\ncommand = [\"/d\", \"/no\"]\n\
            [[requires]]\nservice = \"s\"\nphase = \"apply\"\nprobe = [\"/e\"]\n\
            [[template]]\nsource = \"/f\"\ntarget = \"/no\"\ncheck = [\"/g\"]\non_change = [\"/h\"]\n";
        let settings = read(&[("a".into(), text.into())]).unwrap();
        let found: Vec<String> = named_files(&settings)
            .iter()
            .map(|file| format!("{} {} {:?}", file.setting, file.path.display(), file.purpose))
            .collect();
        assert_eq!(
            found,
            [
                "store.endpoints_file /a Store",
                "store.cacert /b Store",
                "services.directories /c Directory",
                "apply.0.command /d Program",
                "requires.0.probe /e Program",
                "template.0.check /g Program",
                "template.0.on_change /h Program",
                "template.0.source /f Source",
            ]
        );
    }

    #[test]
    fn what_a_file_has_to_be_depends_on_its_purpose_and_on_where_one_looks() {
        let check = |purpose, seen: Seen, host: Option<(Severity, &str)>, anywhere: Option<&str>| {
            let found = |place| assess(Path::new("/x"), purpose, &seen, place);
            let host = host.map(|(severity, what)| (severity, what.to_owned()));
            assert_eq!(found(Where::OnTheHost), host, "{purpose:?} {seen:?}");
            let anywhere = anywhere.map(|what| (Severity::Warning, what.to_owned()));
            assert_eq!(found(Where::Anywhere), anywhere, "{purpose:?} {seen:?}");
        };
        use Severity::{Error, Warning};
        let elsewhere = Some("/x is not on this machine");
        let later = "/x does not exist: it cannot run until something installs it";
        check(Purpose::Program, Seen::Nothing, Some((Warning, later)), elsewhere);
        check(Purpose::Program, Seen::File(true), None, None);
        let plain = "/x is not executable";
        check(Purpose::Program, Seen::File(false), Some((Error, plain)), Some(plain));
        let directory = "/x is a directory, not a file";
        check(Purpose::Program, Seen::Directory, Some((Error, directory)), Some(directory));
        check(Purpose::Program, Seen::Refused("why".into()), Some((Error, "why")), Some("why"));
        let nothing = "/x does not exist: it counts for nothing until it does";
        check(Purpose::Source, Seen::Nothing, Some((Warning, nothing)), elsewhere);
        check(Purpose::Source, Seen::File(false), None, None);
        check(Purpose::Directory, Seen::Nothing, Some((Warning, nothing)), elsewhere);
        check(Purpose::Directory, Seen::Directory, None, None);
        let file = "/x is not a directory";
        check(Purpose::Directory, Seen::File(true), Some((Error, file)), Some(file));
        check(Purpose::Store, Seen::Nothing, Some((Error, "/x does not exist")), elsewhere);
        check(Purpose::Store, Seen::Directory, Some((Error, directory)), Some(directory));
    }
}
