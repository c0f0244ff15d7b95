//! Runs `tourbillond token`, which makes, lists and revokes tokens.

use super::terminal::{Failure, Outcome, hand_over, note, print, say};
use crate::audit::{Deed, End};
use crate::config::{Config, duration};
use crate::convert::is_name;
use crate::state::files::sync_folder;
use crate::state::{LONGEST_TOKEN_NAME, NewToken, TokenFile, role_name};
use crate::text::escaped;
use clap::{Arg, ArgMatches, Command};
use core::fmt::Write as _;
use serde_json::json;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tourbillon_api::{AuditAction, Role};

pub(super) fn command(json: &Arg) -> Command {
    Command::new("token")
        .about("Makes, lists and revokes tokens. A running service notices within a second")
        .subcommand_required(true)
        .subcommand(
            Command::new("new")
                .about("Makes a token and prints it. It is stored nowhere else")
                .arg(
                    Arg::new("role")
                        .long("role")
                        .required(true)
                        .value_parser(["reader", "writer", "admin"])
                        .help("The rights that the token gives"),
                )
                .arg(
                    Arg::new("namespace")
                        .long("namespace")
                        .value_name("NAME")
                        .value_parser(namespace)
                        .help("The only namespace that the token is for [default: all]"),
                )
                .arg(
                    Arg::new("name")
                        .long("name")
                        .value_name("NAME")
                        .default_value("")
                        .value_parser(name)
                        .help("A name for people"),
                )
                .arg(
                    Arg::new("expires")
                        .long("expires")
                        .value_name("TIME")
                        .value_parser(duration)
                        .help("The time for which the token is accepted, as 90d [default: for ever]"),
                )
                .arg(
                    Arg::new("out")
                        .long("out")
                        .value_name("FILE")
                        .value_parser(clap::value_parser!(PathBuf))
                        .help("A new file for the token, which only its owner may read [default: it is printed]"),
                ),
        )
        .subcommand(
            Command::new("list").about("Lists the tokens, which are known by their hashes only").arg(json),
        )
        .subcommand(Command::new("revoke").about("Revokes a token").arg(
            Arg::new("which").value_name("ID or NAME").required(true).help("The token's id, or its name"),
        ))
}

/// Parses the name of a namespace, which need not exist yet.
fn namespace(text: &str) -> Result<String, String> {
    let fault = || "a name has 1 to 64 letters, digits, `-`, `_` or `.`".to_owned();
    is_name(text).then(|| text.to_owned()).ok_or_else(fault)
}

fn name(text: &str) -> Result<String, String> {
    let fault = || format!("a token's name has at most {LONGEST_TOKEN_NAME} bytes");
    (text.len() <= LONGEST_TOKEN_NAME).then(|| text.to_owned()).ok_or_else(fault)
}

/// A temporary file for a new token, and the path to which the file is moved. `keep` writes the token and moves the
/// file. If the value is dropped without `keep`, the file is removed.
struct Out(tempfile::NamedTempFile, PathBuf);

impl Out {
    fn create(path: &Path) -> Result<Self, Failure> {
        if path.exists() {
            return Err(format!("{}: there is such a file, which stays as it is", path.display()).into());
        }
        // The temporary file is in the folder of `path`, because no rename leads to another file system.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Only the owner may read a temporary file.
        let file = tempfile::NamedTempFile::new_in(folder);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(file, path.to_owned()))
    }

    fn keep(self, token: &str) -> Result<(), Failure> {
        let Self(mut file, path) = self;
        let failure = |error: io::Error| -> Failure { format!("{}: {error}", path.display()).into() };
        writeln!(file, "{token}").and_then(|()| file.as_file().sync_all()).map_err(failure)?;
        // Another program may have made a file at `path` since `create`. That file stays as it is.
        file.persist_noclobber(&path).map_err(|error| failure(error.error))?;
        // Without this step, a power failure could remove the name of the file, and with it the only copy of the token.
        // Some folders cannot be synced, such as a folder that its owner may not read. The file has the token even so.
        if let Err(error) = sync_folder(&path) {
            say(format_args!(
                "{}: a power failure may remove the file, its folder is not synced: {error}",
                path.display()
            ));
        }
        Ok(())
    }
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
    // An absolute path lets the user notice a command in the wrong folder.
    let path = config.token_file();
    let path = std::path::absolute(&path).unwrap_or(path);
    let file = TokenFile::new(&path);
    let failure = |error: io::Error| -> Failure { format!("{}: {error}", path.display()).into() };
    match matches.subcommand() {
        Some(("new", matches)) => {
            let out = matches.get_one::<PathBuf>("out");
            // The file is made before the token is stored. So if the file cannot be made, no token is made.
            let out = out.map(|path| Out::create(path)).transpose()?;
            let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
            let role = match text("role") {
                Some("reader") => Role::Reader,
                Some("writer") => Role::Writer,
                _ => Role::Admin,
            };
            let namespace = text("namespace").map(Into::into);
            let expires = matches.get_one("expires").copied();
            let name = text("name").unwrap_or("").into();
            // `add` makes a missing file, so the check comes first.
            let is_new = !path.exists();
            let deed = Deed::new(AuditAction::MakeToken);
            let (token, stored) = file.add(NewToken { name, role, namespace, expires }).map_err(failure)?;
            note(config, deed.target(stored.id()).detail(stored.words()), End::done());
            let handed_over = match out {
                Some(out) => out.keep(&token),
                None => hand_over(&token),
            };
            // The user did not get the token, so the service must not accept it.
            if handed_over.is_err() {
                let revoked = file.revoke(&stored.id());
                let end = match &revoked {
                    Ok(_) => End::done(),
                    Err(error) => End::failed(error.to_string()),
                };
                note(config, Deed::new(AuditAction::RevokeToken).target(stored.id()), end);
                revoked.map_err(failure)?;
            }
            handed_over?;
            say(format_args!("the token has the id {} in {}", stored.id(), path.display()));
            if is_new {
                say(
                    "this file is new: only a service with this folder, or this file of tokens, will know it",
                );
            }
        }
        Some(("list", matches)) => {
            let tokens = file.read().map_err(failure)?;
            if tokens.is_none() {
                say(format_args!("there is no file {}: a service permits everything", path.display()));
            }
            let tokens = tokens.unwrap_or_default();
            if matches.get_flag("json") {
                let rows = tokens.iter().map(|token| {
                    json!({
                        "id": token.id(),
                        "name": token.name,
                        "role": token.role,
                        "namespace": token.namespace,
                        "made": token.made,
                        "until": token.until,
                        "expired": token.is_expired(),
                    })
                });
                print(format_args!("{:#}\n", serde_json::Value::from_iter(rows)))?;
            } else {
                let mut lines =
                    format!("{:<12}  {:<6}  {:<16}  {:<24}  NAME\n", "ID", "ROLE", "NAMESPACE", "UNTIL");
                for token in &tokens {
                    let namespace = escaped(token.namespace.as_deref().unwrap_or("(all)"));
                    let until = token.until.map_or_else(|| "-".to_owned(), |until| until.to_string());
                    let expired = if token.is_expired() { " (expired)" } else { "" };
                    let (id, role, name) = (token.id(), role_name(token.role), escaped(&token.name));
                    let _infallible =
                        writeln!(lines, "{id:<12}  {role:<6}  {namespace:<16}  {until:<24}  {name}{expired}");
                }
                print(lines)?;
            }
        }
        Some(("revoke", matches)) => {
            let which = matches.get_one::<String>("which").map_or("", String::as_str);
            let token = file.revoke(which).map_err(failure)?;
            let deed = Deed::new(AuditAction::RevokeToken).target(token.id()).detail(token.words());
            note(config, deed, End::done());
            say(format_args!("the token {} is revoked", token.id()));
        }
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}
