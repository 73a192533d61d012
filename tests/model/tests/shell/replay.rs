//! Personalities made of files: what they answer, what they lack, and files that are wrong.

use crate::rig::{Rig, cmd, with};
use mlx5_model::replay::{BadLine, Replay};
use mlx5_model::watch::trace::read;
use mlx5_model::{Config, Facts};
use proptest::prelude::*;
use std::fmt::Write as _;

const LINUX: &str = include_str!("../../../data/connectx4-linux.txt");
const REPORT: &str = include_str!("../../../data/report-connectx6dx.jsonl");

fn replay(text: &str) -> Replay {
    Replay::read(text.as_bytes()).unwrap()
}

fn rig(text: &str) -> Rig {
    let mut rig = Rig::new(replay(text).config());
    rig.now = 1_000_000_000;
    rig.step();
    rig.enable();
    rig
}

fn lacks(text: &str, what: &str) -> bool {
    replay(text).lacks().iter().any(|line| line.contains(what))
}

#[test]
fn the_recorded_connectx_4_answers_as_it_did() {
    let mut rig = rig(LINUX);
    let commands = read(LINUX).unwrap();
    let mut cleared = 0;
    let mut seen = std::collections::BTreeSet::new();
    for command in &commands {
        let op_mod = u16::from_be_bytes([command.input[6], command.input[7]]);
        let asked = matches!(command.opcode, 0x100 | 0x101 | 0x107 | 0x10a);
        if !asked || !seen.insert((command.opcode, op_mod)) {
            continue;
        }
        if command.opcode == 0x107 && op_mod == 2 {
            rig.give(0, 6);
        }
        let answer = rig.ok(&cmd(command.opcode, op_mod, 16), command.output.len()).out;
        for (own, card) in answer.iter().zip(&command.output) {
            assert_eq!(own & !card, 0, "{:#x} {op_mod:#x}", command.opcode);
            cleared += u32::from(op_mod & 1 == 0) * (own ^ card).count_ones();
        }
    }
    // A bit for each thing that the model has not got.
    let hidden = replay(LINUX).lacks().iter().filter(|line| line.starts_with("hides ")).count();
    assert_eq!(cleared as usize, hidden);
    assert_eq!(seen.len(), 14, "{seen:?}");
    let replay = replay(LINUX);
    assert_eq!(
        replay.source(),
        "recorded bring-up: 88 lines, 42 commands, 14 answers; nearest card connectx-4"
    );
    for line in [
        "lacks PCI device id: that of connectx-4",
        "lacks NIC vport context: that of connectx-4",
        "lacks regular pages: that of connectx-4",
        "lacks times of commands: each is answered at once",
        "lacks fact link: at-once, of the model",
        "hides striding_rq: the model has not got it",
    ] {
        assert!(replay.lacks().iter().any(|own| own == line), "{line}: {:#?}", replay.lacks());
    }
    assert!(!lacks(LINUX, "general capabilities") && !lacks(LINUX, "fact roce-version"));
}

#[test]
fn a_report_answers_as_it_says() {
    let mut rig = rig(REPORT);
    let mut id = [0; 4];
    rig.hca.config_read(0, &mut id);
    assert_eq!(id, [0xb3, 0x15, 0x1d, 0x10]);
    rig.hca.config_read(0x9c, &mut id);
    assert_eq!(u16::from_le_bytes([id[2], id[3]]) & 0x7ff, 63, "vectors");
    let general = rig.ok(&cmd(0x100, 1, 16), 4112).out;
    assert_eq!(general[16 + 0x41] >> 4 & 3, 1, "umr_fence");
    let dtor = rig.ok(&with(cmd(0x805, 1, 80), 8, 0xc00e), 80);
    assert_eq!(dtor.word(16 + 40), 0x2000_000a);
    let adapter = rig.ok(&cmd(0x101, 0, 16), 272).out;
    assert_eq!(&adapter[256..269], b"MT_0000000359");
    rig.give(0, 6);
    assert_eq!(rig.query_pages(2).1, 1000);
    assert_eq!(rig.query_pages(3).1, -5);
    let start = rig.now;
    rig.ok(&cmd(0x101, 0, 16), 272);
    assert!(rig.now - start >= 170_000, "as long as it took the card");
    rig.give(0, 1000);
    rig.ok(&cmd(0x102, 0, 32), 16);
    let context = rig.ok(&cmd(0x754, 0, 16), 272).out;
    assert_eq!(context[16 + 0xf6..16 + 0xfc], [2, 0, 0, 0, 0, 1]);
    assert_eq!(rig.hca.complaints(), [""; 0]);
    for line in [
        "lacks Ethernet capabilities, current: the maximum",
        "lacks atomic capabilities, maximum: that of connectx-6dx",
        "lacks PTYS: that of connectx-6dx",
        "lacks fact link: at-once, of the model",
        "lacks fact init-pages",
    ] {
        assert_eq!(lacks(REPORT, line), !line.contains("init-pages"), "{line}");
    }
    assert!(!lacks(REPORT, "fact teardown") && !lacks(REPORT, "fact umr-fence"));
}

#[test]
fn what_the_card_refused_is_refused() {
    let at = REPORT.lines().position(|line| line.contains(r#""opcode":256,"op_mod":2"#)).unwrap();
    let line = REPORT.lines().nth(at).unwrap();
    let out = line.split(r#""out":""#).nth(1).unwrap().split('"').next().unwrap();
    let text = REPORT.replace(out, "0300000000123456");
    let mut rig = rig(&text);
    assert_eq!(rig.status(&cmd(0x100, 2, 16), 4112), (3, 0x0012_3456));
    assert!(!lacks(&text, "Ethernet capabilities, maximum"));
}

#[test]
fn a_report_that_ends_in_a_hang_says_where() {
    let end = REPORT.find(r#"{"kind":"end","step":7"#).unwrap();
    assert!(lacks(&REPORT[..end], "ends within check 7.mad"));
}

/// The answer of a capability line, with a field of the block changed.
fn capability(text: &str, op_mod: u16, byte: usize, value: u8) -> String {
    let key = format!(r#""opcode":256,"op_mod":{op_mod},"#);
    let edit = |line: &str| {
        let Some((head, out)) = line.split_once(r#""out":""#).filter(|_| line.contains(&key))
        else {
            return line.to_owned();
        };
        let at = (16 + byte) * 2;
        format!(r#"{head}"out":"{}{value:02x}{}"#, &out[..at], &out[at + 2..])
    };
    text.lines().map(|line| edit(line) + "\n").collect()
}

fn wrong(text: &str) -> BadLine {
    Replay::read(text.as_bytes()).map(|replay| replay.describe()).unwrap_err()
}

/// Replaces the first occurrence, which must be there.
fn swap(from: &str, to: &str) -> String {
    assert!(REPORT.contains(from), "{from}");
    REPORT.replacen(from, to, 1)
}

#[test]
fn a_wrong_report_names_line_and_field() {
    let of = |text: &str| {
        let error = wrong(text);
        (error.line, error.field)
    };
    let line = |needle: &str| 1 + REPORT.lines().position(|line| line.contains(needle)).unwrap();
    let general = line(r#""opcode":256,"op_mod":0,"#);
    let named = |field: &str| (general, format!("out: cmd_hca_cap.{field}"));
    // log_max_qp is the low five bits of byte 0x13, log_max_eq the low four of byte 0x1f.
    assert_eq!(of(&capability(REPORT, 0, 0x13, 0)), named("log_max_qp"));
    assert_eq!(of(&capability(REPORT, 0, 0x13, 0xff)), named("log_max_qp"));
    assert_eq!(of(&capability(REPORT, 0, 0x1f, 0xff)), named("log_max_eq"));
    let above = of(&capability(REPORT, 1, 0x13, 18));
    assert_eq!(above, (general + 1, "out: cmd_hca_cap.log_max_qp".into()));
    let ones = "f".repeat(8192);
    let roce = line(r#""opcode":256,"op_mod":8,"#);
    let text: String = REPORT
        .lines()
        .map(|line| match line.split_once(r#""out":""#) {
            Some((head, out)) if line.contains(r#""op_mod":8,"#) && out.len() > 8000 => {
                format!("{head}\"out\":\"{}{ones}\",\"us\":1}}\n", "0".repeat(32))
            }
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(of(&text), (roce, "out: capabilities 0x4".into()));
    let adapter = line(r#""opcode":257"#);
    let iseg = line(r#""kind":"iseg""#);
    let pages = line(r#""opcode":263,"op_mod":1"#);
    let config = line(r#""kind":"config""#);
    let cases = [
        (swap(r#""format":1"#, r#""format":2"#), 1, "format"),
        (swap("15b3:101d", "8086:101d"), 1, "device"),
        (swap(r#""kind":"head""#, r#""kind":"tail""#), 1, "kind"),
        (swap(r#""us":250000"#, r#""us":1e300"#), line(r#""when":"after""#), "us"),
        (swap(r#""us":170}"#, r#""us":18446744073709551615}"#), adapter, "us"),
        (swap(r#""us":170}"#, r#""us":-1}"#), adapter, "us"),
        (swap(r#""opcode":257,"#, ""), adapter, "opcode"),
        (swap(r#""opcode":257,"#, r#""opcode":258,"#), adapter, "opcode"),
        (swap(r#""opcode":257,"op_mod":0"#, r#""opcode":257,"op_mod":9"#), adapter, "op_mod"),
        (swap(r#""in":"0101"#, r#""in":"x101"#), adapter, "in"),
        (swap(r#""in":"0101"#, r#""in":"1"#), adapter, "in"),
        (swap("4d545f30303030", ""), adapter, "out"),
        (swap(r#""bytes":"001f0016"#, r#""bytes":"00000000"#), iseg, "bytes"),
        (swap(r#""bytes":"001f0016000503f6"#, r#""bytes":"001f0016ffff03f6"#), iseg, "bytes"),
        (swap(r#""bytes":"b3151d10"#, r#""bytes":"ffffffff"#), config, "bytes"),
        (swap(r#""bytes":"b3151d10"#, r#""bytes":"b3151e10"#), config, "bytes"),
        (swap("0000000000000006", "000000007fffffff"), pages, "out: num_pages"),
        (swap(r#""boot":6"#, r#""boot":-6"#), line(r#""kind":"pages""#), "boot"),
        (swap(r#""fact":"teardown""#, r#""fact":"tearup""#), line("teardown"), "fact"),
        (swap(r#""setting":"fast""#, r#""setting":"slow""#), line("teardown"), "setting"),
        (swap(r#""network":"ipv4""#, r#""network":"ipx""#), line(r#""kind":"grh""#), "network"),
        (swap(r#""result":"pass""#, r#""result":"maybe""#), line(r#""kind":"end""#), "result"),
        (swap(r#""step":7"#, r#""step":12"#), line(r#""check":"7.mad""#), "step"),
    ];
    for (text, line, field) in cases {
        assert_eq!(of(&text), (line, field.to_owned()), "{}", wrong(&text));
    }
    // Cut within a line, at every kind of line.
    let mut at = 0;
    for (n, line) in REPORT.lines().enumerate() {
        let error = wrong(&REPORT[..at + line.len() / 2]);
        assert_eq!((error.line, error.field.as_str()), (n + 1, "object"));
        at += line.len() + 1;
    }
    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert_eq!(of(&deep), (1, "object".into()));
    let many: String = (0..3000u32).fold(REPORT.to_owned(), |mut text, n| {
        let _ = writeln!(
            text,
            r#"{{"kind":"command","step":3,"opcode":256,"op_mod":{},"in":"010000000000{:04x}","out":"0000000000000000{}","us":1}}"#,
            4096 + n * 2,
            4096 + n * 2,
            "0".repeat(8208),
        );
        text
    });
    assert_eq!(wrong(&many).field, "op_mod", "more questions than any card answers");
}

#[test]
fn a_wrong_recording_names_line_and_field() {
    let of = |text: &str| {
        let error = wrong(text);
        (error.line, error.field)
    };
    let swap = |from: &str, to: &str| {
        assert!(LINUX.contains(from), "{from}");
        LINUX.replacen(from, to, 1)
    };
    let line = |needle: &str| 1 + LINUX.lines().position(|line| line.contains(needle)).unwrap();
    let first = line("in 104");
    let adapter = line("out 101");
    for (text, line, field) in [
        (String::new(), 1, "direction"),
        (swap("in 104 16", "im 104 16"), first, "direction"),
        (swap("in 104 16", "in zz 16"), first, "opcode"),
        (swap("in 104 16", "in 104 99999999999999999999"), first, "length"),
        (swap("in 104 16", "in 104 1048577"), first, "length"),
        (swap("in 104 16", "in 104 4"), first, "in"),
        (
            swap("out 101 272 28:", "out 101 272 ffffffffffffffff:"),
            adapter,
            "ffffffffffffffff:000002c9",
        ),
        (swap("out 101 272", "out 101 270"), adapter, "10c:37000000"),
        (swap("out 107 16 c:00000006", "out 107 8"), line("out 107"), "out"),
        (swap("out 101 272", "out 102 272"), adapter, "opcode"),
        (swap("20:0f0f0017", "20:0f0f0000"), line("20:0f0f0017"), "out: cmd_hca_cap.log_max_qp"),
        (swap("c:00000006", "c:7fffffff"), line("c:00000006"), "out: num_pages"),
        (LINUX[..LINUX.rfind("out ").unwrap()].to_owned(), LINUX.lines().count() - 1, "opcode"),
    ] {
        let error = wrong(&text);
        // The bad command itself is seen when its answer comes.
        assert!(error.line == line || error.line == line + 1, "{error}");
        assert_eq!(error.field, field, "{error}");
    }
    assert_eq!(of("in 104 16\n\u{0}").1, "direction");
    assert_eq!(Replay::read(b"in 104 16\nout \xff").unwrap_err().line, 2);
    let waiting = "in 104 16 0:01040000\n".repeat(40);
    assert_eq!(of(&waiting), (33, "direction".into()));
}

/// One change of a file.
#[derive(Clone, Debug)]
enum Edit {
    Byte(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
    Cut(usize),
    Number(usize, &'static str),
    Fill(usize, usize, u8),
    LineAway(usize),
    Lines(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<usize>;
    let numbers = ["0", "-1", "4294967295", "18446744073709551616", "1e999", "null", "\"\"", "{}"];
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (at(), prop_oneof![Just(b'0'), Just(b'f'), Just(b'"'), Just(b'\n')])
            .prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (at(), 1..200usize).prop_map(|(at, n)| Edit::Remove(at, n)),
        (at(), 1..200usize).prop_map(|(at, n)| Edit::Repeat(at, n)),
        at().prop_map(Edit::Cut),
        (at(), prop::sample::select(numbers.to_vec())).prop_map(|(at, to)| Edit::Number(at, to)),
        (at(), 1..400usize, prop_oneof![Just(b'0'), Just(b'f'), Just(b'8')])
            .prop_map(|(at, n, with)| Edit::Fill(at, n, with)),
        at().prop_map(Edit::LineAway),
        (at(), at()).prop_map(|(a, b)| Edit::Lines(a, b)),
    ]
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len().max(1);
        if bytes.is_empty() {
            return;
        }
        match *self {
            Self::Byte(at, to) => bytes[at % len] = to,
            Self::Remove(at, n) => drop(bytes.drain(at % len..(at % len + n).min(len))),
            Self::Repeat(at, n) => {
                let part = bytes[at % len..(at % len + n).min(len)].to_vec();
                bytes.splice(at % len..at % len, part);
            }
            Self::Cut(at) => bytes.truncate(at % len),
            Self::Number(at, to) => {
                let from = (at % len..len).find(|at| bytes[*at].is_ascii_digit());
                let from = from.unwrap_or(len);
                let end = (from..len).find(|at| !bytes[*at].is_ascii_digit()).unwrap_or(len);
                bytes.splice(from..end, to.bytes());
            }
            // Digits stay digits: lengths and all else of the file stay right.
            Self::Fill(at, n, with) => {
                let to = bytes[at % len..].iter_mut().take(n);
                to.filter(|byte| byte.is_ascii_hexdigit()).for_each(|byte| *byte = with);
            }
            Self::LineAway(at) => {
                let mut all = lines(bytes);
                all.remove(at % all.len());
                *bytes = all.join(&b'\n');
            }
            Self::Lines(a, b) => {
                let mut all = lines(bytes);
                let count = all.len();
                all.swap(a % count, b % count);
                *bytes = all.join(&b'\n');
            }
        }
    }
}

/// A device of any file that is taken comes up or refuses, and never panics.
fn try_out(config: Config) {
    let mut rig = Rig::new(Config { init_pages: Some(4), boot_pages: 2, ..config });
    rig.now = 700_000_000_000;
    rig.step();
    // A mutated time may be long, and an address may be missing: any answer will do.
    let send = |rig: &mut Rig, input: &[u8], length: usize| {
        rig.post(0, input, length);
        rig.ring(1);
        assert!(rig.wait(0, 2_000_000_000_000), "no answer to {:02x?}", &input[..2]);
    };
    rig.set_page();
    send(&mut rig, &cmd(0x104, 0, 16), 16);
    for op_mod in 0..20 {
        send(&mut rig, &cmd(0x100, op_mod, 16), 4112);
    }
    for (opcode, op_mod) in [(0x101, 0), (0x10a, 0), (0x107, 1), (0x107, 2), (0x107, 3)] {
        send(&mut rig, &cmd(opcode, op_mod, 16), 272);
    }
    send(&mut rig, &Rig::give_command(0, &[1, 2, 3, 4, 5, 6].map(|n| n << 28)), 16);
    send(&mut rig, &cmd(0x102, 0, 32), 16);
    for register in [0x5002u32, 0x5003, 0x5004, 0x5006, 0x5007, 0x5008, 0xc00e, 0x9014, 0x1234] {
        let asked = with(with(cmd(0x805, 1, 80), 8, register), 16, 1 << 16);
        send(&mut rig, &asked, 272);
    }
    send(&mut rig, &cmd(0x754, 0, 16), 272);
    send(&mut rig, &cmd(0x800, 0, 16), 16);
    rig.hca.flr();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]
    #[test]
    fn mutated_files_are_taken_or_named(linux: bool, edits in prop::collection::vec(edit(), 1..5)) {
        let mut bytes = if linux { LINUX.as_bytes().to_vec() } else { REPORT.as_bytes().to_vec() };
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        match Replay::read(&bytes) {
            Ok(replay) => try_out(replay.config()),
            Err(error) => {
                let count = lines(&bytes).len();
                prop_assert!((1..=count).contains(&error.line), "{error}");
                prop_assert!(!error.field.is_empty() && !error.what.is_empty());
            }
        }
    }
}

#[test]
fn facts_on_top_win() {
    let facts: Facts = "roce-version=1".parse().unwrap();
    let mut config = replay(REPORT).config();
    config.facts.extend([facts]);
    let mut rig = Rig::new(config);
    rig.now = 1_000_000_000;
    rig.step();
    rig.enable();
    assert_eq!(rig.ok(&cmd(0x100, 9, 16), 4112).out[16 + 0x13], 1);
}
