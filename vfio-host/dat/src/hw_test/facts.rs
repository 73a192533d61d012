//! Open facts of silicon, as far as commands show them. Names and settings are those of the table
//! of open facts that the device model has.

use hca_mlx5::prm::At;
use hca_mlx5::prm::caps::{AtomicCap, BLOCK_AT, CapType, EthernetCap, GeneralCap, RoceCap};
use hca_mlx5::prm::cmd::Opcode;
use hca_mlx5::prm::pages::{Need, PageOp, QueryPagesOut};
use hca_mlx5::prm::reg::{self, AccessRegIn, Pmtu, Register};
use hca_mlx5::prm::vport::{NicVportContext, QUERIED_CONTEXT};

use super::report::Report;
use super::watch::{Command, Watch};

/// A slow TEARDOWN_HCA, and a slow return of pages, in microseconds.
const SLOW_TEARDOWN: f64 = 5e6;
const SLOW_RECLAIM: f64 = 2.5e6;

/// Returns the first answer of a capability block.
fn block(commands: &[Command], op_mod: u16) -> Option<&[u8]> {
    let found = commands.iter().find(|command| {
        command.op == Opcode::QueryHcaCap && command.op_mod == op_mod && command.status() == 0
    });
    found.map(|command| &*command.output)
}

/// Returns the first answer to an opcode.
fn answer(commands: &[Command], op: Opcode) -> Option<&[u8]> {
    let found = commands.iter().find(|command| command.op == op && command.status() == 0);
    found.map(|command| &*command.output)
}

/// Returns accesses to a register, in their order.
fn registers(
    commands: &[Command],
    register: Register,
    op_mod: u16,
) -> impl Iterator<Item = &Command> {
    commands.iter().filter(move |command| {
        command.op == Opcode::AccessReg
            && command.op_mod == op_mod
            && AccessRegIn(&*command.input).register_id() == register as u16
    })
}

fn capabilities(commands: &[Command]) -> Vec<(&'static str, String)> {
    let mut found: Vec<(&'static str, String)> = Vec::new();
    let number = |bit: bool| u8::from(bit).to_string();
    if let Some(bytes) = block(commands, CapType::General.current()) {
        let cap = GeneralCap(At::<_, BLOCK_AT>(bytes));
        let port = if cap.port_type() == 1 { "ethernet" } else { "infiniband" };
        let bf = if cap.bf() { cap.log_bf_reg_size().to_string() } else { "none".into() };
        found.extend([
            ("port-type", port.into()),
            ("cqe-version", cap.cqe_version().to_string()),
            ("sq-ts-format", cap.sq_ts_format().to_string()),
            ("rq-ts-format", cap.rq_ts_format().to_string()),
            ("umr-modify-entity-size-disabled", number(cap.umr_modify_entity_size_disabled())),
            ("umr-modify-atomic-disabled", number(cap.umr_modify_atomic_disabled())),
            ("umr-indirect-mkey-disabled", number(cap.umr_indirect_mkey_disabled())),
            ("umr-fence", cap.umr_fence().to_string()),
            ("log-bf-reg-size", bf),
            ("local-ca-ack-delay", cap.local_ca_ack_delay().to_string()),
            ("uplink-follow", number(cap.uplink_follow())),
            ("fixed-buffer-size", number(cap.fixed_buffer_size())),
            ("eswitch-manager", number(cap.eswitch_manager())),
            ("sw-owner-id", number(cap.sw_owner_id())),
            ("num-vhca-ports", cap.num_vhca_ports().to_string()),
            ("cq-resize", number(cap.cq_resize())),
            ("fast-teardown", number(cap.fast_teardown())),
        ]);
    }
    // What software switches on is 0 before it does.
    if let Some(bytes) = block(commands, CapType::General.max()) {
        let cap = GeneralCap(At::<_, BLOCK_AT>(bytes));
        found.push(("uar-4k", number(cap.uar_4k())));
        let line = if cap.cache_line_128byte() { "128" } else { "64" };
        found.push(("cache-line", line.into()));
    }
    if let Some(bytes) = block(commands, CapType::Roce.max()) {
        let cap = RoceCap(At::<_, BLOCK_AT>(bytes));
        let ports = if cap.sw_r_roce_src_udp_port() { "settable" } else { "absent" };
        found.extend([
            ("sw-r-roce-src-udp-port", ports.into()),
            ("qp-ts-format", cap.qp_ts_format().to_string()),
            ("roce-version", cap.roce_version().to_string()),
            ("l3-type", cap.l3_type().to_string()),
            ("roce-address-table", cap.roce_address_table_size().to_string()),
        ]);
    }
    if let Some(bytes) = block(commands, CapType::Ethernet.current()) {
        let context = answer(commands, Opcode::QueryNicVportContext).unwrap_or_default();
        let least = NicVportContext(At::<_, QUERIED_CONTEXT>(context)).min_wqe_inline_mode();
        let mode = match (EthernetCap(At::<_, BLOCK_AT>(bytes)).wqe_inline_mode(), least) {
            (0, _) => "l2",
            (1, 2) => "vport-ip",
            (1, _) => "vport-l2",
            _ => "not-required",
        };
        found.push(("wqe-inline-mode", mode.into()));
    }
    found
}

/// Returns what bring-up showed.
fn bring_up(commands: &[Command]) -> Vec<(&'static str, String)> {
    let mut found = capabilities(commands);
    if let Some(bytes) = answer(commands, Opcode::QueryNicVportContext) {
        let context = NicVportContext(At::<_, QUERIED_CONTEXT>(bytes));
        let mac = if context.permanent_address() == 0 { "zero" } else { "card" };
        found.push(("mac", mac.into()));
    }
    if let Some(read) = registers(commands, Register::Pmtu, reg::READ).next() {
        if read.status() == 0 {
            let pmtu = Pmtu(At::<_, { reg::CONTENTS }>(&*read.output));
            found.push(("port-mtu", pmtu.oper_mtu().to_string()));
        }
    }
    if let Some(write) = registers(commands, Register::HostEndianness, reg::WRITE).next() {
        let known = if write.status() == 0 { "known" } else { "unknown" };
        found.push(("host-endianness", known.into()));
    }
    let init = commands
        .iter()
        .find(|command| command.op == Opcode::QueryPages && command.op_mod == Need::Init as u16);
    if let Some(init) = init.filter(|init| init.status() == 0) {
        found.push(("init-pages", QueryPagesOut(&*init.output).num_pages().to_string()));
    }
    found
}

/// Writes what the commands of a bring-up show.
pub(super) fn report_bring_up(report: &Report, watch: &Watch<'_>) {
    let found = watch.commands(bring_up);
    for (fact, setting) in found {
        report.fact(fact, &setting);
    }
    watch.commands(|commands| {
        let Some(bytes) = block(commands, CapType::General.current()) else { return };
        let cap = GeneralCap(At::<_, BLOCK_AT>(bytes));
        report.number("cap.log_max_qp", cap.log_max_qp(), "");
        report.number("cap.roce", u8::from(cap.roce()), "");
        report.number("cap.roce_rw_supported", u8::from(cap.roce_rw_supported()), "");
        report.number("cap.num_ports", cap.num_ports(), "");
        if let Some(bytes) = block(commands, CapType::Atomic.current()) {
            let cap = AtomicCap(At::<_, BLOCK_AT>(bytes));
            report.number("cap.atomic_mode", cap.atomic_req_8b_endianness_mode(), "");
            report.number("cap.atomic_operations", cap.atomic_operations(), "");
        }
    });
}

/// Writes what the commands of a teardown show.
pub(super) fn report_teardown(report: &Report, watch: &Watch<'_>) {
    watch.commands(|commands| {
        let longest = |wanted: &dyn Fn(&Command) -> bool| {
            let all = commands.iter().filter(|command| wanted(command)).map(|command| command.us);
            all.reduce(f64::max)
        };
        if let Some(us) = longest(&|command| command.op == Opcode::TeardownHca) {
            report.fact("teardown", if us > SLOW_TEARDOWN { "10s" } else { "fast" });
        }
        let taken = |command: &Command| {
            command.op == Opcode::ManagePages && command.op_mod == PageOp::Take as u16
        };
        if let Some(us) = longest(&taken) {
            report.fact("reclaim", if us > SLOW_RECLAIM { "5s" } else { "fast" });
        }
    });
}
