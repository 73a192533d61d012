//! `dat conf` and `dat install-provider`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::machine::{Machine, Run};

/// Something that begins as a library does.
const PROVIDER: &[u8] = b"\x7fELF and more";

fn dat(args: &[&str]) -> Run {
    Run::of(Command::new(env!("CARGO_BIN_EXE_dat")).args(args).output().unwrap())
}

#[test]
fn a_line_names_the_provider_and_its_parameters() {
    let run = dat(&["conf", "3b:00.0", "--ip", "192.168.7.1/24", "--mtu", "1024", "--log", "warn"]);
    assert_eq!(
        (run.code, run.out.as_str()),
        (
            0,
            "dat u2.0 nonthreadsafe default libdapldat.so dapldat.2.0 \
             \"0000:3b:00.0 ip=192.168.7.1/24 mtu=1024 log=warn\" \"\"\n"
        )
    );
    let run = dat(&[
        "conf",
        "vfio-user:/run/a",
        "vfio-user:/run/b",
        "--ip",
        "fd00::1/64",
        "--ip",
        "fd00::2/64",
        "--threadsafe",
        "--name",
        "hca",
        "--library",
        "/opt/lib/libdapldat.so",
    ]);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(
        lines[1],
        "hca1 u2.0 threadsafe default /opt/lib/libdapldat.so dapldat.2.0 \
         \"vfio-user:/run/b ip=fd00::2/64\" \"\""
    );
    assert!(lines.len() == 2 && lines[0].starts_with("hca0 "), "{lines:?}");
}

#[test]
fn classes_and_writable_queues_are_written() {
    let words = "conf 3b:00.0 --ip 10.0.0.1/8 --tos 104 --priority 3 --qos premium,184,5 \
                 --qos economy,0x20,0 --writable-queues --compress-completions --inline-receives --sm --status \
                 --log warn";
    let run = dat(&words.split_whitespace().collect::<Vec<_>>());
    let wanted = "tos=0x68 priority=3 qos=premium,0xb8,5 qos=economy,0x20,0 queues=writable \
         completions=compressed receives=inline sm=on status=on log=warn";
    assert!(run.out.contains(wanted), "{}", run.out);
    for (option, says) in [
        ("--tos=256", "0 to 255"),
        ("--priority=8", "0 to 7"),
        ("--qos=gold,1,2", "gold is none of"),
        ("--qos=premium,1", "NAME,CLASS,PRIORITY"),
    ] {
        let run = dat(&["conf", "3b:00.0", "--ip", "10.0.0.1/8", option]);
        assert!(run.code == 2 && run.err.contains(says), "{option}: {}", run.err);
    }
}

#[test]
fn every_hca_on_vfio_has_a_line() {
    let machine = Machine::ready();
    machine.hca("0000:3b:00.0", 12, Some("vfio-pci"));
    machine.hca("0000:5e:00.0", 13, Some("mlx5_core"));
    machine.hca("0000:86:00.0", 14, Some("vfio-pci"));
    let run = machine.run(&["conf", "--ip", "10.0.0.1/8", "--ip", "10.0.0.2/8", "--json"]);
    let lines = run.json();
    assert_eq!(lines.as_array().unwrap().len(), 2);
    assert_eq!(lines[1]["name"], "dat1");
    assert_eq!(lines[1]["parameters"], "0000:86:00.0 ip=10.0.0.2/8");

    let run = machine.run(&["conf", "--ip", "10.0.0.1/8"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("0000:3b:00.0, 0000:86:00.0 need one address each"), "{}", run.err);
}

#[test]
fn impossible_arguments_are_refused_with_a_reason() {
    let run = Machine::ready().run(&["conf"]);
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("no HCA is bound to vfio-pci") && run.err.contains("dat bind"),
        "{}",
        run.err
    );
    for (args, says) in [
        (["vfio-user:/a b", "10.0.0.1/8", "dat"], "the socket"),
        (["3b:00.0", "10.0.0.1/8", "a\"b"], "the name"),
    ] {
        let [device, ip, name] = args;
        let run = dat(&["conf", device, "--ip", ip, "--name", name]);
        assert_eq!(run.code, 2, "{device}");
        assert!(run.err.contains(says), "{}", run.err);
    }
    let run = dat(&["conf", "3b:00.0", "--ip", "10.0.0.1/8", "--gateway", "fd00::1"]);
    assert_eq!(run.code, 2);
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(["conf", "3b:00.0", "--ip", "10.0.0.1/8", "--library"]);
    let run = Run::of(command.arg(OsStr::from_bytes(b"/lib/\xff.so")).output().unwrap());
    assert!(run.code == 2 && run.err.contains("the library /lib/"), "{}", run.err);
    assert!(run.err.contains(" is no text"), "{}", run.err);
}

#[test]
fn neighbours_are_fixed_up_to_a_bound() {
    let with = |count: usize| {
        let mut args = vec!["conf", "3b:00.0", "--ip", "10.0.0.1/8"];
        args.extend(["--neigh", "10.0.0.2,02:00:00:00:ff:0b"].repeat(count));
        dat(&args)
    };
    let run = with(2);
    let words = " neigh=10.0.0.2,02:00:00:00:ff:0b".repeat(2);
    assert!(run.out.contains(&format!("ip=10.0.0.1/8{words}\"")), "{}", run.out);
    assert_eq!(with(32).code, 0);
    let run = with(33);
    assert!(run.code == 2 && run.err.contains("32 neighbours"), "{}", run.err);
}

fn install(folder: &Path, more: &[&str]) -> Run {
    install_below(&folder.join("prefix"), folder, more)
}

fn install_below(prefix: &Path, folder: &Path, more: &[&str]) -> Run {
    let provider = folder.join("build.so");
    fs::write(&provider, PROVIDER).unwrap();
    Run::of(
        Command::new(env!("CARGO_BIN_EXE_dat"))
            .args(["install-provider", "3b:00.0", "--prefix"])
            .arg(prefix)
            .arg("--library")
            .arg(&provider)
            .args(more)
            .output()
            .unwrap(),
    )
}

#[test]
fn a_provider_is_installed_once_however_often() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("prefix/etc/dat.conf");
    let library = folder.path().join("prefix/lib/libdapldat.so");
    fs::create_dir_all(conf.parent().unwrap()).unwrap();
    let others =
        "# mine\nofa-v2-ib0 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n";
    fs::write(&conf, others).unwrap();

    let run = install(folder.path(), &["--ip", "10.0.0.1/8"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains(&format!("DAT_OVERRIDE={}", conf.display())), "{}", run.out);
    assert_eq!(fs::read(&library).unwrap(), PROVIDER);
    let header = folder.path().join("prefix/include/dat2/dat_dapldat.h");
    assert!(fs::read_to_string(header).unwrap().contains("#define DAT_DAPLDAT_VERSION"));
    let first = fs::read_to_string(&conf).unwrap();
    let line = format!(
        "dat u2.0 nonthreadsafe default {} dapldat.2.0 \"0000:3b:00.0 ip=10.0.0.1/8\" \"\"\n",
        library.display()
    );
    assert_eq!(first, format!("{others}{line}"));

    let run = install(folder.path(), &["--ip", "10.0.0.1/8"]);
    assert!(run.code == 0 && run.out.matches("unchanged").count() == 3, "{}", run.out);
    assert_eq!(fs::read_to_string(&conf).unwrap(), first);

    let run = install(folder.path(), &["--ip", "10.0.0.2/8"]);
    assert_eq!(run.code, 0);
    let second = fs::read_to_string(&conf).unwrap();
    assert_eq!(second, first.replace("10.0.0.1", "10.0.0.2"));
    assert!(!folder.path().join("prefix/etc/dat.conf.new").exists());
}

#[test]
fn a_refusal_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("prefix/etc/dat.conf");
    fs::create_dir_all(conf.parent().unwrap()).unwrap();
    let taken = "dat u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n";
    fs::write(&conf, taken).unwrap();
    let run = install(folder.path(), &["--ip", "10.0.0.1/8"]);
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("line 1 has the name dat already") && run.err.contains("--name"),
        "{}",
        run.err
    );
    assert_eq!(fs::read_to_string(&conf).unwrap(), taken);
    assert!(!folder.path().join("prefix/lib").exists());
    assert!(!folder.path().join("prefix/include").exists());

    let run = install(folder.path(), &[]);
    assert_eq!(run.code, 2, "{}", run.err);
    let text = folder.path().join("text");
    fs::write(&text, "text").unwrap();
    let named = text.to_str().unwrap();
    let run = dat(&[
        "install-provider",
        "3b:00.0",
        "--ip",
        "10.0.0.1/8",
        "--prefix",
        "/nowhere",
        "--library",
        named,
    ]);
    assert!(run.code == 1 && run.err.contains("not a library"), "{}", run.err);
    // A file that the kernel lets nobody write, root neither.
    let library = folder.path().join("other/lib/libdapldat.so.new");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/ostype", library).unwrap();
    let other = folder.path().join("other");
    let run = install_below(&other, folder.path(), &["--ip", "10.0.0.1/8"]);
    for words in [
        "/other/lib/libdapldat.so.new: cannot be written: Permission denied",
        "help: run it with sudo, or give --prefix a folder of your own",
    ] {
        assert!(run.code == 1 && run.err.contains(words), "{words}: {}", run.err);
    }
    // Beside a program that stands by itself there is no library.
    let alone = folder.path().join("dat");
    // Not by this process: a child of another test could inherit the descriptor, and a file that is
    // open for writing does not run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_dat")).arg(&alone).status();
    assert!(copied.unwrap().success());
    let run = Run::of(
        Command::new(alone)
            .args(["install-provider", "3b:00.0", "--ip", "10.0.0.1/8"])
            .args(["--prefix", "/nowhere"])
            .output()
            .unwrap(),
    );
    assert!(run.code == 1 && run.err.contains("cargo build"), "{}", run.err);
}
