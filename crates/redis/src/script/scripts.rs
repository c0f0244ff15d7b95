//! The list of the Lua scripts. Each script first reads the time by which it decides: the server's time, or the
//! caller's time in a deployment on a test clock.
//!
//! The scripts that deliver and end timers free memory, so they run even if the server's memory is full. A server with
//! a full memory refuses the scripts that store new data.

use super::source::{Script, within_memory};

macro_rules! text {
    ($clock:literal, $file:literal) => {
        concat!(include_str!(concat!("lua/", $clock, ".lua")), include_str!(concat!("lua/", $file, ".lua")))
    };
}

macro_rules! scripts {
    (
        read { $($read:ident = $read_file:literal,)* }
        grow { $($name:ident = $file:literal,)* }
        keep { $($kept:ident = $kept_file:literal,)* }
    ) => {
        /// All scripts, in one of two variants that read the present time from different clocks: [`BY_SERVER`] or
        /// [`BY_CALLER`].
        pub(crate) struct Scripts {
            $(pub(crate) $read: Script,)*
            $(pub(crate) $name: Script,)*
            $(pub(crate) $kept: Script,)*
        }

        /// The scripts that read the present time from the server's clock, to decide which timers are due and which
        /// leases have ended.
        pub(crate) static BY_SERVER: Scripts = Scripts {
            $($read: Script::of_read(stringify!($read), text!("now", $read_file)),)*
            $($name: Script::new(stringify!($name), text!("now", $file)),)*
            $($kept: Script::with_flags(
                stringify!($kept),
                text!("now", $kept_file),
                concat!(within_memory!(), text!("now", $kept_file)),
            ),)*
        };

        /// The scripts that read the present time from an argument, for deployments on a test clock, to decide
        /// which timers are due and which leases have ended.
        pub(crate) static BY_CALLER: Scripts = Scripts {
            $($read: Script::of_read(
                concat!(stringify!($read), ", by the caller's time"),
                text!("now_test", $read_file),
            ),)*
            $($name: Script::new(
                concat!(stringify!($name), ", by the caller's time"),
                text!("now_test", $file),
            ),)*
            $($kept: Script::with_flags(
                concat!(stringify!($kept), ", by the caller's time"),
                text!("now_test", $kept_file),
                concat!(within_memory!(), text!("now_test", $kept_file)),
            ),)*
        };

        #[cfg(test)]
        impl Scripts {
            fn all(&self) -> Vec<&Script> {
                vec![$(&self.$read,)* $(&self.$name,)* $(&self.$kept),*]
            }
        }
    };
}

scripts!(
    // These scripts need no flag. Without flags, a server with a full memory refuses only the commands that need more
    // memory.
    read {
    are_connected = "are_connected",
    are_stored = "are_stored",
    contents = "contents",
    count_scores = "count_scores",
    counts = "counts",
    deployment = "deployment",
    document = "document",
    dump = "dump",
    expired = "expired",
    find_id = "find_id",
    marks = "marks",
    members = "members",
    nodes = "nodes",
    owners = "owners",
    reasons = "reasons",
    records = "records",
    recover = "recover",
    redirects = "redirects",
    scores = "scores",
    sums = "sums",
    types = "types",
    } grow {
    commit = "commit",
    create = "create",
    find_key = "find_key",
    mark_shards = "mark_shards",
    open = "open",
    ready = "ready",
    replace_document = "replace_document",
    reserve = "reserve",
    void_redirect = "void_redirect",
    } keep {
    announce = "announce",
    bury = "bury",
    claim = "claim",
    take_parked = "take_parked",
    // `commit_kept` is the script `commit` for changes that do not make the data grow.
    commit_kept = "commit",
    drop_redirect = "drop_redirect",
    end_many = "end_many",
    expire = "expire",
    heartbeat = "heartbeat",
    quarantine = "quarantine",
    quit = "quit",
    release = "release",
    renew = "renew",
    repair_leases = "repair_leases",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the calls of Redis commands in a script's text. Returns the name and the first argument of each call.
    fn calls(source: &str) -> Result<Vec<(String, String)>, String> {
        let code: String = source
            .lines()
            .map(|line| line.split_once("--").map_or(line, |(code, _)| code))
            .flat_map(|line| [line, "\n"])
            .collect();
        if ["pcall", "loadstring", "dofile", "setmetatable", "_G"].iter().any(|way| code.contains(way)) {
            return Err("a way around redis.call".to_owned());
        }
        let mut calls = Vec::new();
        let mut rest = &code[..];
        while let Some(at) = rest.find("redis.") {
            rest = &rest[at + "redis.".len()..];
            if rest.starts_with("error_reply(") {
                continue;
            }
            let Some(arguments) = rest.strip_prefix("call(") else {
                return Err(format!("another use of redis: {:.30}", rest));
            };
            let mut parts = Vec::new();
            let (mut depth, mut part) = (0, String::new());
            for sign in arguments.chars() {
                match sign {
                    '(' | '[' | '{' => depth += 1,
                    ')' if depth == 0 => break,
                    ')' | ']' | '}' => depth -= 1,
                    ',' if depth == 0 => {
                        parts.push(part.trim().to_owned());
                        part.clear();
                        continue;
                    }
                    _ => {}
                }
                part.push(sign);
            }
            parts.push(part.trim().to_owned());
            parts.resize(2, String::new());
            calls.push((parts[0].clone(), parts[1].clone()));
        }
        Ok(calls)
    }

    /// The commands that change nothing.
    const READS: [&str; 15] = [
        "EXISTS",
        "HGET",
        "HGETALL",
        "HLEN",
        "HMGET",
        "HSCAN",
        "PUBSUB",
        "TIME",
        "TYPE",
        "ZCOUNT",
        "ZLEXCOUNT",
        "ZMSCORE",
        "ZRANGE",
        "ZRANGEBYLEX",
        "ZSCORE",
    ];

    /// Returns the names of the commands that a script calls, or an error if a command uses a key that is not declared.
    fn verify(source: &str) -> Result<Vec<String>, String> {
        if source.matches("redis").count() != source.matches("redis.").count() {
            return Err("redis under another name".to_owned());
        }
        if source.contains("KEYS =") || source.contains("KEYS=") {
            return Err("KEYS is assigned".to_owned());
        }
        let mut commands = Vec::new();
        for (command, key) in calls(source)? {
            let is_name = |text: &str| text.chars().all(|sign| sign.is_ascii_uppercase());
            let name = command.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            let name =
                name.filter(|name| is_name(name)).ok_or(format!("{command} is not the name of a command"))?;
            let is_declared = key.starts_with("KEYS[") && key.find(']') == Some(key.len() - 1);
            // A channel is not a key.
            if !["TIME", "PUBLISH", "PUBSUB"].contains(&name) && !is_declared {
                return Err(format!("{name} {key}: the key is not KEYS[...]"));
            }
            commands.push(name.to_owned());
        }
        Ok(commands)
    }

    #[test]
    fn every_key_of_every_script_is_declared() {
        let mut commands = Vec::new();
        for script in BY_SERVER.all().into_iter().chain(BY_CALLER.all()) {
            match verify(script.source()) {
                Ok(found) => {
                    let writes = found.iter().find(|name| !READS.contains(&&***name));
                    assert!(!script.only_reads() || writes.is_none(), "{}: {writes:?}", script.name());
                    commands.extend(found);
                }
                Err(fault) => panic!("{}: {fault}", script.name()),
            }
            assert!(script.source().contains("-- KEYS:"), "{} has no table of its keys", script.name());
            let says = if script.only_reads() { "Changes nothing." } else { "A second run " };
            assert!(script.source().contains(says), "{} does not say what a second run does", script.name());
        }
        commands.sort_unstable();
        commands.dedup();
        let documented = include_str!("../../README.md");
        for command in commands {
            assert!(documented.contains(&format!("`{command}`")), "{command} is not in the README's list");
        }
    }

    #[test]
    fn a_key_that_is_not_declared_is_found() {
        for bad in [
            "redis.call('GET', 'tb:{a:1}:records')",
            "redis.call('GET', KEYS[1] .. 'x')",
            "local key = 'x'\nredis.call('GET', key)",
            "redis.call('GET', ARGV[1])",
            "redis.call(ARGV[1], KEYS[1])",
            "redis.pcall('GET', KEYS[1])",
            "local r = redis\nr.call('GET', 'x')",
            "local call = redis.call\ncall('GET', 'x')",
            "KEYS = ARGV redis.call('GET', KEYS[1])",
            "redis.call('GET', KEYS[1]..KEYS[2])",
        ] {
            assert!(verify(bad).is_err(), "{bad}");
        }
        assert_eq!(
            verify("redis.call('GET', KEYS[n + 1]) -- redis.call('GET', x)"),
            Ok(vec!["GET".to_owned()])
        );
    }
}
