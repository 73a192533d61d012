//! The demo as a whole, and the frames it puts on the wire looked at by others: ICRC by another CRC
//! than the model's, and tshark where the machine has it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a failed expectation is a failed test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use dat_tests::demo::{self, Options, Report};
use pcap_file::pcap::PcapReader;

fn run(words: &[&str]) -> Report {
    let options = Options::parse_from(["demo", "--json"].iter().chain(words));
    demo::run(&options).unwrap_or_else(|e| panic!("{words:?}: {e:#}"))
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    folder.join(format!("{name}-{}", std::process::id()))
}

#[test]
fn the_demo_runs() {
    let report = run(&[]);
    assert!(report.rows.len() >= 11, "{report}");
    assert!(report.complaints.is_empty(), "{report}");
    let up = &report.rows[0];
    assert!(up.result.contains("firmware pages (16 MiB)"), "{}", up.result);
    let write = report.rows.iter().find(|row| row.act == "RDMA write").unwrap();
    assert_eq!(write.mmio_stores, write.operations, "one doorbell each, nothing else");
}

#[test]
fn every_mtu_and_address_family_and_a_vlan() {
    for words in [
        ["--mtu", "256", "--size", "10001"].as_slice(),
        &["--mtu", "512", "--ipv6"],
        &["--mtu", "1024", "--vlan", "5"],
        &["--mtu", "2048", "--vlan", "4094", "--ipv6"],
    ] {
        let report = run(&[words, &["--count", "8"]].concat());
        assert!(report.complaints.is_empty(), "{words:?}: {report}");
    }
}

#[test]
fn loss_is_repaired_whatever_the_dice_say() {
    for seed in 1..8 {
        let seed = seed.to_string();
        let rest = ["--size", "200K", "--count", "12", "--mtu", "1024", "--seed", &seed];
        let report = run(&[["--loss", "8"].as_slice(), &rest].concat());
        assert!(report.lost > 0 && report.retransmitted > 0, "{report}");
    }
}

/// The same of a frame of InfiniBand without a global header, behind its ERF record header: LRH, BTH,
/// the rest, ICRC, VCRC.
fn icrc_of_subnet(record: &[u8]) -> Option<(u32, u32)> {
    let frame = record.get(16..)?;
    // The next header: BTH, not GRH.
    if frame[1] & 3 != 2 {
        return None;
    }
    let mut packet = frame[..frame.len() - 2].to_vec();
    let said = packet.split_off(packet.len() - 4);
    packet[0] |= 0xf0;
    packet[8 + 4] = 0xff;
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
    Some((crc.checksum(&packet), u32::from_le_bytes(said.try_into().unwrap())))
}

/// ICRC as the standard describes it, by a CRC that the model does not use.
fn icrc(frame: &[u8]) -> Option<(u32, u32)> {
    let mut at = 12;
    while frame[at..at + 2] == [0x81, 0x00] {
        at += 4;
    }
    let l3 = at + 2;
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let (header, total) = match word(at) {
        0x0800 => (20, word(l3 + 2)),
        0x86dd => (40, 40 + word(l3 + 4)),
        _ => return None,
    };
    let mut packet = frame[l3..l3 + total].to_vec();
    if packet.get(header + 2..header + 4)? != 4791_u16.to_be_bytes() {
        return None;
    }
    let said = packet.split_off(total - 4);
    if header == 20 {
        packet[1] = 0xff;
        packet[8] = 0xff;
        packet[10..12].fill(0xff);
    } else {
        packet[0] |= 0x0f;
        packet[1..4].fill(0xff);
        packet[7] = 0xff;
    }
    packet[header + 6..header + 8].fill(0xff);
    packet[header + 8 + 4] = 0xff;
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
    let mut digest = crc.digest();
    digest.update(&[0xff; 8]);
    digest.update(&packet);
    Some((digest.finalize(), u32::from_le_bytes(said.try_into().unwrap())))
}

fn check_capture(path: &Path, icrc: fn(&[u8]) -> Option<(u32, u32)>) -> usize {
    let mut reader = PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut checked = 0;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        if let Some((own, said)) = icrc(&packet.data) {
            assert_eq!(own, said, "frame {checked}");
            checked += 1;
        }
    }
    checked
}

/// Every frame decodes as what it is: RoCEv2 down to the InfiniBand headers, or the address
/// resolution before it.
fn check_by_tshark(path: &Path) {
    let fields = ["-T", "fields", "-e", "frame.protocols", "-e", "infiniband.mad.attributeid"];
    let out = match Command::new("tshark").arg("-r").arg(path).args(fields).output() {
        Ok(out) if out.status.success() => String::from_utf8(out.stdout).unwrap(),
        _ => {
            println!(
                "NOTE: no tshark on this machine; the frames were checked by this test's own reader only"
            );
            return;
        }
    };
    let mut requests = 0;
    for line in out.lines() {
        let known = ["infiniband", "arp", "icmpv6"].iter().any(|p| line.contains(p));
        assert!(known && !line.contains("malformed"), "tshark reads a frame as {line}");
        requests += usize::from(line.contains("0x0010"));
    }
    assert!(requests >= 2, "tshark saw {requests} connection requests");
}

#[test]
fn captured_frames_have_the_right_icrc_and_decode() {
    for (name, words, check) in [
        ("v4", ["--loss", "5", "--mtu", "1024"].as_slice(), icrc as fn(&[u8]) -> _),
        ("v6-vlan", &["--ipv6", "--vlan", "7"], icrc),
        ("ib", &["--link", "ib", "--loss", "5", "--mtu", "2048"], icrc_of_subnet),
        ("ib-v6", &["--link", "ib", "--ipv6"], icrc_of_subnet),
    ] {
        let path = scratch(name);
        let file = path.to_str().unwrap();
        run(&[words, &["--size", "64K", "--count", "6", "--pcap", file]].concat());
        assert!(check_capture(&path, check) > 100);
        check_by_tshark(&path);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_trace_has_every_command_in_the_kernel_s_form() {
    let path = scratch("trace");
    run(&["--count", "1", "--size", "1K", "--trace", path.to_str().unwrap()]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for name in ["ENABLE_HCA(0x104) INPUT", "INIT_HCA(0x102) OUTPUT", "CREATE_QP(0x500) INPUT"] {
        assert!(text.contains(&format!("dump command {name}")), "{name} is missing");
    }
    assert!(text.contains("dump command TEARDOWN_HCA(0x103) OUTPUT"), "no teardown");
    assert!(text.contains("000: 07000000 00000010 00000000 00000000"));
    assert!(text.contains("command block:"));
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let options = Options::parse_from(["demo", "--pcap", "/nonexistent/x.pcap"]);
    let error = format!("{:#}", demo::run(&options).unwrap_err());
    assert!(error.contains("/nonexistent/x.pcap"), "{error}");
}

#[test]
fn sizes_take_units_and_limits() {
    let size = |text| Options::try_parse_from(["demo", "--size", text]).map(|o| o.size);
    assert_eq!(size("64K").unwrap(), 65536);
    assert_eq!(size("1m").unwrap(), 1 << 20);
    assert_eq!(size("7").unwrap(), 7);
    for bad in ["0", "", "17M", "1G", "-1", "999999999999999999999K"] {
        assert!(size(bad).is_err(), "{bad}");
    }
}

#[test]
fn other_values_are_checked() {
    let reads =
        |words: [&str; 2]| Options::try_parse_from(["demo"].into_iter().chain(words)).is_ok();
    assert!(reads(["--loss", "5"]) && reads(["--loss", "5%"]));
    assert!(!reads(["--loss", "51"]) && !reads(["--loss", "x"]));
    assert!(reads(["--mtu", "1024"]) && !reads(["--mtu", "1500"]));
}
