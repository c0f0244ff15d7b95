//! Defines the program `tourbillond`, with its commands and flags.

mod check;
mod condition;
mod demo;
mod mend;
mod restore;
mod serve;
mod terminal;
mod token;

use crate::config::{self, ConfigError, Loaded, SETTINGS, Setting, Sources};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::Path;
use std::process::ExitCode;
use terminal::{Outcome, print, say};

const AFTER_HELP: &str = "\
A setting is taken from its flag, else from its variable TOURBILLON_..., else from the file, else it has its default.
`tourbillond config` prints all settings with their origins, in the form of a file.

The program ends with 0 after a stop by SIGTERM or SIGINT, with 2 if a flag, a variable or the file of settings is wrong,
and with 1 after any other failure. SIGHUP reads the tokens and the certificate again.";

/// Makes the command-line flag that sets a setting.
fn flag_of(setting: &Setting) -> Arg {
    let heading = match setting.section() {
        "" => "Settings".to_owned(),
        section => format!("Settings of {section}"),
    };
    let default =
        if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_name(setting.value)
        .help(format!("{}{default}", setting.help().trim_end_matches('.')))
        .help_heading(heading)
        .global(true);
    match setting.form {
        // Without `require_equals`, a command that follows the flag would be taken for the value of the flag.
        config::Form::Truth => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        config::Form::List => arg.action(ArgAction::Append),
        _ => arg,
    }
}

fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON value");
    Command::new("tourbillond")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Durable timers as a service, with signed HTTP callbacks")
        .after_help(AFTER_HELP)
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("PATH")
                .value_parser(clap::value_parser!(std::path::PathBuf))
                .global(true)
                .help("The file of settings [default: tourbillon.toml, if there is one]"),
        )
        .args(SETTINGS.iter().map(flag_of))
        .subcommand(Command::new("serve").about("Runs the service. This is the default"))
        .subcommand(Command::new("config").about("Prints each setting with its origin").arg(json.clone()))
        .subcommand(token::command(&json))
        .subcommand(check::command(&json))
        .subcommand(mend::command(&json))
        .subcommand(restore::command(&json))
        .subcommand(demo::command())
        .subcommand(Command::new("openapi").about("Prints the OpenAPI document of the HTTP interface"))
}

/// Loads the configuration of this process from its file, its environment variables and its flags.
fn load(matches: &ArgMatches) -> Result<Loaded, ConfigError> {
    config::load(&Sources {
        file: matches.get_one::<std::path::PathBuf>("config").map(|path| &**path),
        folder: Path::new(""),
        environment: std::env::vars_os().collect(),
        flag: &|setting| {
            let values: Vec<_> = matches.get_many::<String>(setting.key)?.map(String::as_str).collect();
            // A flag may be repeated. The settings read a list as one text with commas.
            Some(values.join(","))
        },
    })
}

fn run(matches: &ArgMatches) -> Outcome {
    // This command needs no settings, so a wrong setting must not stop it.
    if let Some(("openapi", _)) = matches.subcommand() {
        print(format_args!("{}\n", crate::http::openapi().to_pretty_json()?))?;
        return Ok(ExitCode::SUCCESS);
    }
    // The matches of the command have the flags behind the command, and clap copies the flags in front of it there.
    let matches_of_command = matches.subcommand().map_or(matches, |(_, matches)| matches);
    let loaded = match load(matches_of_command) {
        Ok(loaded) => loaded,
        Err(error) => {
            say(error);
            return Ok(ExitCode::from(2));
        }
    };
    // `serve` writes the warnings into its log.
    if matches.subcommand_name().is_some_and(|name| name != "serve") {
        loaded.warnings.iter().for_each(say);
    }
    match matches.subcommand() {
        Some(("config", matches)) => {
            if matches.get_flag("json") {
                print(format_args!("{:#}\n", config::json(&loaded)))?;
            } else {
                print(config::lines(&loaded))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(("token", matches)) => token::run(&loaded.config, matches),
        Some(("check", matches)) => check::run(&loaded.config, matches),
        Some(("mend", matches)) => mend::run(&loaded.config, matches),
        Some(("restore", matches)) => restore::run(&loaded.config, matches),
        Some(("demo", matches)) => demo::run(matches),
        _ => serve::run(&loaded),
    }
}

/// Runs the program `tourbillond` with the arguments of this process. Returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    match run(&command().get_matches()) {
        Ok(code) => code,
        Err(error) => {
            let code = terminal::code_of(&error);
            say(error);
            code
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_sound() {
        command().debug_assert();
    }

    #[test]
    fn flags_stand_before_and_after_the_command() {
        for line in [
            &["tourbillond", "--drain", "1s", "--behind-proxy", "config"][..],
            &["tourbillond", "config", "--drain=1s", "--behind-proxy=true"],
            &["tourbillond", "--drain=1s", "--behind-proxy"],
        ] {
            let matches = command().try_get_matches_from(line).unwrap();
            let matches = matches.subcommand().map_or(&matches, |(_, matches)| matches);
            assert_eq!(matches.get_one::<String>("drain").map(String::as_str), Some("1s"), "{line:?}");
            assert_eq!(
                matches.get_one::<String>("behind_proxy").map(String::as_str),
                Some("true"),
                "{line:?}"
            );
        }
    }
}
