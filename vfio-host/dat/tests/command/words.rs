//! Help texts and messages against the files that have them: see [`super::golden`].

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::golden::{UNSEEN, blesses, folder, golden, literals, rule};
use crate::machine::Run;

/// Every command, as its words.
const COMMANDS: [&str; 26] = [
    "",
    "list",
    "info",
    "bind",
    "unbind",
    "doctor",
    "listen",
    "ping",
    "perf",
    "top",
    "counters",
    "connections",
    "trace",
    "conf",
    "install-provider",
    "run",
    "hw-test",
    "compat",
    "compat rping",
    "compat perftest",
    "compat perftest send_bw",
    "compat perftest send_lat",
    "compat perftest write_bw",
    "compat perftest write_lat",
    "compat perftest read_bw",
    "compat perftest atomic_bw",
];

#[test]
fn help() {
    let mut text = String::new();
    for words in COMMANDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
        let output = command.args(words.split_whitespace()).arg("--help").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words}");
        let help = String::from_utf8(output.stdout).unwrap();
        let commands = help.split_once("Commands:").map_or("", |(_, rest)| rest);
        let commands = commands.split("\n\n").next().unwrap_or_default();
        for line in
            commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        {
            let name = line.split_whitespace().next().unwrap();
            let full = format!("{words} {name}");
            assert!(
                COMMANDS.contains(&full.trim()) || full.contains("read_lat"),
                "{full:?} is missing in this list"
            );
        }
        text.push_str(&format!("$ dat {words} --help\n").replace("  ", " "));
        text.push_str(&help);
        text.push('\n');
    }
    let file = folder().join("help.txt");
    if blesses() {
        fs::write(file, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(file).unwrap();
    for (line, (found, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of help.txt", line + 1);
    }
    assert_eq!(text.len(), expected.len());
}

#[test]
fn messages() {
    let (mut seen, mut unseen) = golden();
    let new = folder().join("messages.new");
    if blesses() {
        seen.extend(fs::read_to_string(&new).unwrap_or_default().lines().map(str::to_owned));
    }
    let now: BTreeSet<String> = literals()
        .into_iter()
        .filter(|literal| {
            let rule = rule(literal);
            !seen.iter().any(|line| rule.is_match(line))
        })
        .collect();
    let all: BTreeSet<String> = unseen.values().flatten().cloned().collect();
    if blesses() {
        for lines in unseen.values_mut() {
            lines.retain(|line| now.contains(line));
        }
        // Whatever has no reason yet.
        let fresh = now.difference(&all).cloned();
        unseen.entry(UNSEEN.to_owned()).or_default().extend(fresh);
        let mut text = String::from(
            "# Messages of `dat` as its tests see them: `DAT_BLESS=1` with these tests adds to them.\n\n",
        );
        text.extend(seen.iter().map(|line| format!("{line}\n")));
        for (heading, lines) in unseen.iter().filter(|(_, lines)| !lines.is_empty()) {
            text.push_str(&format!("\n{heading}\n\n"));
            text.extend(lines.iter().map(|line| format!("{line}\n")));
        }
        fs::write(folder().join("messages.txt"), text).unwrap();
        let _ = fs::remove_file(new);
        return;
    }
    let fresh: Vec<_> =
        now.difference(&all).chain(unseen.get(UNSEEN).into_iter().flatten()).collect();
    assert!(fresh.is_empty(), "no test sees these messages, and no heading says why: {fresh:#?}");
    let stale: Vec<_> = all.difference(&now).collect();
    assert!(stale.is_empty(), "these are gone, or seen: {stale:#?}");
}

/// Arguments that cannot be: the message says what they are instead, and the exit status is 2.
#[test]
fn arguments_that_cannot_be() {
    let adapter = "vfio-user:/nowhere 10.0.0.1 --ip 10.0.0.2/8";
    for (arguments, says) in [
        ("pign x", "a similar subcommand exists: 'ping'"),
        ("ping x --tiemout 3", "a similar argument exists: '--timeout'"),
        ("ping nowhere 10.0.0.1 --ip 10.0.0.2/8", "nowhere"),
        ("ping 3b:00.0 10.0.0.1:0 --ip 10.0.0.2/8", "a port is 1 to 65535"),
        ("ping 3b:00.0 somebody --ip 10.0.0.2/8", "a peer is an address, as 192.168.7.1"),
        ("ping 3b:00.0 10.0.0.1 --ip 10.0.0.2/33", "a prefix has 1 to 32 bits"),
        ("ping 3b:00.0 10.0.0.1 --ip 10.0.0.2", "the length of the network's prefix is missing"),
        ("ping 3b:00.0 10.0.0.1 --ip x/8", "x is no address"),
        ("ping 3b:00.0 fd00::1 --ip 10.0.0.2/8", "are of different kinds"),
        ("ping 3b:00.0 10.0.0.2 --ip 10.0.0.2/8", "is this adapter's own address"),
        ("ping 3b:00.0 224.0.0.1 --ip 10.0.0.2/8", "is not the address of a host"),
        ("perf ADAPTER --sizes 64..8", "a range begins with the smaller one"),
        ("perf ADAPTER --threads 3 --connections 2", "3 threads have 2 connections"),
        ("perf ADAPTER --rate 0", "a rate is 1 or more operations in a second"),
        ("perf ADAPTER --rate 1,2 --sizes 1,2", "several sizes or several rates, not both"),
        ("perf ADAPTER --size 2M", "a size is 1 to 1M"),
        ("perf ADAPTER --size 1M --depth 48", "size times depth is too much: 4M at the most"),
        ("perf ADAPTER --duration 0", "give 0.1 to 3600 seconds"),
        ("perf ADAPTER --iommu vfio", "it is auto, type1, iommufd or none"),
        ("perf ADAPTER --mtu 1500", "a path MTU is 256, 512, 1024, 2048 or 4096"),
        ("hw-test --steps 12 3b:00.0", "a step is 0 to 11"),
        ("hw-test 3b:00.0", "--report FILE is missing"),
    ] {
        let arguments = arguments.replace("ADAPTER", adapter);
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
        let run = Run::of(command.args(arguments.split_whitespace()).output().unwrap());
        assert!(run.err.contains(says), "{arguments}: {}", run.err);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
    }
}
