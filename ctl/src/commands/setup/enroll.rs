//! `enroll`: prints etcdctl commands that create users, roles and grants in the store, or take them away. It does not
//! access the store: only the store's root can create users, and this program need not know root's
//! credentials.

use crate::commands::verb::{About, Answer, Group, LocalVerb, Past, Program, Spec};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{Output, shell_word};
use anyhow::anyhow;
use clap::Args;
use schema::grants;
use schema::grants::Grant;
use schema::names::{HostName, Role, ServiceName};
use schema::reads::Keys;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const EVERY_AGENT: &str = "orchestrate-agent";
const ROLLS_BACK: &str = "orchestrate-agent-rolls-back";

/// The kinds of users of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UserKind {
    /// The agent of a host, with rights to its own keys
    Agent,
    /// People who trigger updates, decommission hosts and set values in the store
    Operator,
    /// Users who only read
    Verifier,
}

/// Print commands that give a user of the store its rights
#[derive(Debug, Args)]
pub(crate) struct Enroll {
    /// Name of the user; for an agent the name of its host, as in its certificate
    name: String,
    /// Kind of user, which decides its rights
    #[arg(long = "as", value_name = "KIND", value_enum, default_value = "agent")]
    kind: UserKind,
    /// A service of the host; may be given several times
    #[arg(long = "service", value_name = "SERVICE", add = completion::services())]
    services: Vec<String>,
    /// Let the agent write the desired version, as a policy with `on_halt = "roll_back"` needs
    #[arg(long = "may-roll-back")]
    may_roll_back: bool,
    /// Give the user the password in this file, where the commands run. Without it the user needs a client certificate
    #[arg(long = "password-file", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    password_file: Option<String>,
    /// Print the commands that take all rights away: they delete the user, and the role of a host
    #[arg(long, conflicts_with_all = ["services", "may_roll_back", "password_file"])]
    remove: bool,
    /// Print etcdctl commands for a shell, to be run by the store's root user
    #[arg(long = "print-etcdctl", required = true)]
    print_etcdctl: bool,
}

impl LocalVerb for Enroll {
    const SPEC: Spec = Spec {
        name: "enroll",
        group: Group::Setup,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::NotJson,
        examples: &[
            ("orchestrate enroll web-7 --print-etcdctl --service web", "the user of an agent"),
            ("orchestrate enroll alice --print-etcdctl --as operator", "the user of a person"),
            (
                "orchestrate enroll web-7 --remove --print-etcdctl",
                "takes the rights of a host away that left",
            ),
        ],
    };

    /// Prints the commands that create a user with its roles and grants, or that delete it.
    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { name, kind, services, may_roll_back, password_file, remove, print_etcdctl: _ } = self;
        if remove {
            output.raw(&removal(&name, kind)?);
            return Ok(Exit::Yes);
        }
        let services: BTreeSet<ServiceName> =
            services.iter().map(ServiceName::new).collect::<Result<_, _>>().map_err(Failure::usage)?;
        if kind != UserKind::Agent && !services.is_empty() {
            return Err(Failure::usage(anyhow!("--service is of hosts: only an agent publishes services")));
        }
        if kind != UserKind::Agent && may_roll_back {
            return Err(Failure::usage(anyhow!(
                "--may-roll-back is for agents: operators may trigger any version"
            )));
        }
        // The user is a host name, or has the syntax of a role name. Neither can contain a character
        // that is special to a shell.
        let (user, roles) = match kind {
            UserKind::Agent => {
                let host = HostName::folded(&name).map_err(Failure::usage)?;
                let mut roles = vec![
                    (EVERY_AGENT.to_owned(), grants::every_agent()),
                    (own_role(&host), grants::agent(&host, &services)),
                ];
                if may_roll_back {
                    roles.push((ROLLS_BACK.to_owned(), grants::roll_back()));
                }
                // The user has the name in the host's certificate, where capitals matter.
                (name, roles)
            }
            UserKind::Operator => {
                (user_name(&name)?, vec![("orchestrate-operator".to_owned(), grants::operator())])
            }
            UserKind::Verifier => {
                (user_name(&name)?, vec![("orchestrate-verifier".to_owned(), grants::verifier())])
            }
        };
        output.raw(&script(&user, password_file.as_deref(), &roles, &program.settings.session.namespace));
        Ok(Exit::Yes)
    }
}

/// Returns the role that only the agent of this host has.
fn own_role(host: &HostName) -> String {
    format!("{EVERY_AGENT}-{host}")
}

/// Returns the script that deletes a user and the role that only this user has. It can be run again.
fn removal(name: &str, kind: UserKind) -> Result<String, Failure> {
    let delete = |what: &str, name: &str| {
        format!("if etcdctl {what} get {name} >/dev/null 2>&1; then etcdctl {what} delete {name}; fi\n")
    };
    Ok(match kind {
        UserKind::Agent => {
            let host = HostName::folded(name).map_err(Failure::usage)?;
            format!("set -e\n{}{}", delete("user", name), delete("role", &own_role(&host)))
        }
        UserKind::Operator | UserKind::Verifier => format!("set -e\n{}", delete("user", &user_name(name)?)),
    })
}

fn user_name(name: &str) -> Result<String, Failure> {
    Ok(Role::new(name).map_err(Failure::usage)?.to_string())
}

/// Returns the script. It can be run again: users and roles that exist are kept.
fn script(
    user: &str,
    password_file: Option<&str>,
    roles: &[(String, Vec<Grant>)],
    namespace: &str,
) -> String {
    let mut text = String::from("set -e\n");
    let mut line = |words: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{words}");
    };
    match password_file.map(shell_word) {
        None => line(format_args!(
            "etcdctl user get {user} >/dev/null 2>&1 || etcdctl user add {user} --no-password"
        )),
        // The password is in no argument, which other users of the machine could see.
        Some(file) => line(format_args!(
            "if etcdctl user get {user} >/dev/null 2>&1; then etcdctl user passwd {user} --interactive=false <{file}; \
             else etcdctl user add {user} --interactive=false <{file}; fi"
        )),
    }
    for (role, grants) in roles {
        line(format_args!("etcdctl role get {role} >/dev/null 2>&1 || etcdctl role add {role}"));
        for Grant { access, keys } in grants {
            match keys {
                Keys::One(key) => line(format_args!(
                    "etcdctl role grant-permission {role} {access} {}",
                    shell_word(&format!("{namespace}{key}"))
                )),
                Keys::Below(prefix) => line(format_args!(
                    "etcdctl role grant-permission {role} {access} --prefix=true {}",
                    shell_word(&format!("{namespace}{prefix}"))
                )),
            }
        }
        line(format_args!("etcdctl user grant-role {user} {role}"));
    }
    text
}
