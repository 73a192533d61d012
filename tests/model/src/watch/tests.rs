//! Notes and traces of commands and work requests whose bytes are known.

use super::trace::{Command, compact, read};
use super::{Fields, Half, Observer, Seen, Sends, diff, leaves};
use crate::ifc::qp::{qp_in, qpc};

fn create_qp() -> Vec<u8> {
    let mut input = vec![0; qp_in::BYTES + 8];
    qp_in::opcode.set(&mut input, 0x500);
    let context = qp_in::qpc.bytes_mut(&mut input);
    qpc::log_sq_size.set(context, 6);
    qpc::pd.set(context, 0x1234);
    input[qp_in::BYTES + 4] = 0x55;
    input
}

fn paths(opcode: u16, input: &[u8]) -> Vec<String> {
    leaves(opcode, input, input, Half::Input).into_iter().map(|leaf| leaf.path).collect()
}

#[test]
fn every_bit_of_a_message_has_a_name_or_is_said_to_have_none() {
    let mut input = create_qp();
    assert_eq!(paths(0x500, &input), ["opcode", "qpc.pd", "qpc.log_sq_size", "pas[]"]);
    // Bit 15 of the first dword of the context is reserved.
    input[0x1a] |= 0x80;
    assert_eq!(paths(0x500, &input).last().unwrap(), "bits at 0x18.15");
    // A command nobody knows has a head, and nothing else.
    let unknown = [0x7f, 0xff, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8];
    assert_eq!(paths(0x7fff, &unknown), ["opcode", "op_mod", "number", "bits at 0x10.3"]);
}

#[test]
fn notes_can_be_read_back_and_added_to() {
    let mut fields = Fields::default();
    let input = create_qp();
    let output = [0; 16];
    fields.saw(&Seen::Command { opcode: 0x500, input: &input, output: &output });
    let text = fields.to_string();
    assert_eq!(
        text,
        "in CREATE_QP pas[]: address\nin CREATE_QP qpc.log_sq_size: 0x6\nin CREATE_QP qpc.pd: handle\n"
    );
    let again = Fields::default();
    again.add(&text).unwrap();
    again.add("in CREATE_QP qpc.log_sq_size: 0x7 0x5 0x4 0x3\n").unwrap();
    let line = again.to_string();
    assert!(line.contains("qpc.log_sq_size: 0x3 0x4 0x5 0x6 ...\n"), "{line}");
    assert!(line.contains("qpc.pd: handle"));
    assert!(again.add("nonsense").is_err());
}

#[test]
fn work_requests_are_taken_apart_by_segment() {
    let mut fields = Fields::default();
    // RDMA WRITE: control, remote address, two bytes inline.
    let mut bytes = [0; 48];
    bytes[3] = 8;
    bytes[7] = 3;
    bytes[11] = 8;
    bytes[24..28].copy_from_slice(&[0, 0, 1, 2]);
    bytes[32..38].copy_from_slice(&[0x80, 0, 0, 2, 0xab, 0xcd]);
    fields.saw(&Seen::Send { kind: Sends::Messages, bytes: &bytes });
    assert_eq!(
        fields.to_string(),
        "wqe RDMA_WRITE wqe_ctrl.ce: 0x2\nwqe RDMA_WRITE wqe_ctrl.ds: 0x3\n\
         wqe RDMA_WRITE wqe_ctrl.opcode: 0x8\nwqe RDMA_WRITE wqe_inline.byte_count: 0x2\n\
         wqe RDMA_WRITE wqe_inline.inline: 0x1\nwqe RDMA_WRITE wqe_raddr.rkey: handle\n"
    );
    // Nonsense of any length is taken as far as it goes.
    for length in 0..64 {
        let bytes = vec![0xff; length];
        for kind in [Sends::Messages, Sends::Datagrams, Sends::Frames] {
            fields.saw(&Seen::Send { kind, bytes: &bytes });
        }
        fields.saw(&Seen::Shared { linked: true, bytes: &bytes });
        fields.saw(&Seen::Completion { bytes: &bytes });
        fields.saw(&Seen::Event { bytes: &bytes });
        fields.saw(&Seen::Command { opcode: 0x936, input: &bytes, output: &bytes });
    }
}

#[test]
fn a_capability_write_does_not_set_the_fields_it_repeats() {
    use crate::ifc::caps::cmd_hca_cap as cap;
    let fields = Fields::default();
    let mut query = [0; 16];
    query[0] = 1;
    query[7] = 1;
    let mut answer = vec![0; 16 + cap::BYTES];
    cap::log_max_qp.set(&mut answer[16..], 17);
    cap::cmdif_checksum.set(&mut answer[16..], 3);
    cap::log_max_mkey.set(&mut answer[16..], 20);
    fields.command(0x100, &query, &answer);
    let mut set = answer.clone();
    set[..16].fill(0);
    set[0..2].copy_from_slice(&[1, 9]);
    cap::log_max_qp.set(&mut set[16..], 14);
    cap::cmdif_checksum.set(&mut set[16..], 0);
    fields.command(0x109, &set, &[0; 16]);
    let text = fields.to_string();
    let set: Vec<_> = text.lines().filter(|line| line.starts_with("in SET")).collect();
    assert_eq!(set, ["in SET_HCA_CAP/0 cmdif_checksum: 0x0", "in SET_HCA_CAP/0 log_max_qp: 0xe"]);
}

fn commands() -> Vec<Command> {
    let query = Command {
        opcode: 0x107,
        input: vec![1, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        output: vec![0; 16],
    };
    let mut wide = Command { opcode: 0x109, input: vec![0; 4112], output: vec![0; 12] };
    wide.input[0..2].copy_from_slice(&[1, 9]);
    wide.input[600] = 0x5a;
    wide.input[4111] = 0xa5;
    wide.output[7] = 3;
    vec![query, wide]
}

#[test]
fn traces_survive_both_forms() {
    let commands = commands();
    let text: String = commands.iter().map(Command::to_string).collect();
    assert_eq!(read(&text).unwrap(), commands);
    // As in a kernel's log.
    let logged: String = text
        .lines()
        .map(|line| match line.strip_prefix("dump") {
            Some(rest) => format!("[  +0.1] mlx5_core 0000:02:00.0: x:587:(pid 8): dump{rest}\n"),
            None => format!("[  +0.000001] {line}\n"),
        })
        .collect();
    assert_eq!(read(&logged).unwrap(), commands);
    assert_eq!(read(&compact(&commands)).unwrap(), commands);
    assert!(read("in 104\n").is_err() && read("in 104 4 8:00000001\n").is_err());
}

#[test]
fn runs_are_aligned_before_they_are_compared() {
    let first = commands();
    let mut second = commands();
    second[0].output[15] = 9;
    second.insert(1, second[0].clone());
    second[1].input[7] = 2;
    let lines: Vec<_> =
        diff::compare(&first, &second, false).iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["  QUERY_PAGES/1 out num_pages: 0x0 | 0x9", "+ QUERY_PAGES/2"]);
    assert_eq!(diff::compare(&first, &first, true), []);
}
