//! Function-wide commands: enable, init, teardown, interface version, adapter, special contexts,
//! and the plain number spaces.

use crate::cmd::{Command, FunctionState, Refusal, Stage, Status};
use crate::config::Personality;
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::hca as l;
use crate::numbers::Numbers;

/// lkey that means "bus address as is" to queues that may use it.
pub(crate) const RESERVED_LKEY: u32 = 0x0000_0500;
/// Key that ends a scatter list.
pub(crate) const TERMINATE_MKEY: u32 = 0x0000_0700;

impl Hca {
    /// Whether it is a DPU's own function, which names itself in the commands that name one.
    pub(crate) fn embedded_cpu(&self) -> bool {
        self.config.facts.on(OpenFact::EmbeddedCpu)
    }
}

fn enable(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    // No virtual functions of our own to enable.
    if l::enable_hca_in::function_id.get(input) != 0 {
        return Err(Status::BadParam.because(0x10_4001));
    }
    match (hca.embedded_cpu(), l::enable_hca_in::embedded_cpu_function.is_set(input)) {
        (false, true) => return Err(Status::BadParam.because(0x10_4003)),
        // It is the host's function that is enabled, not this one.
        (true, false) => return Ok(()),
        (false, false) | (true, true) => {}
    }
    if hca.cmd.state != FunctionState::Off {
        if !hca.config.facts.on(OpenFact::EnableLive) {
            return Err(Status::BadSysState.because(0x10_4002));
        }
        // The objects of before are forgotten, the pages are not.
        hca.drop_objects();
    }
    hca.cmd.state = FunctionState::Enabled;
    Ok(())
}

fn disable(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    if l::disable_hca_in::function_id.get(input) != 0 {
        return Err(Status::BadParam.because(0x10_5001));
    }
    match (hca.embedded_cpu(), l::disable_hca_in::embedded_cpu_function.is_set(input)) {
        (false, true) => return Err(Status::BadParam.because(0x10_5003)),
        (true, false) => return Ok(()),
        (false, false) | (true, true) => {}
    }
    if hca.cmd.state == FunctionState::Running {
        return Err(Status::BadSysState.because(0x10_5002));
    }
    let kept = hca.pages.count();
    if kept != 0 {
        hca.bus.complain(format!("DISABLE_HCA while the firmware still owns {kept} pages"));
    }
    hca.cmd.state = FunctionState::Off;
    Ok(())
}

fn init(hca: &mut Hca, _input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    if hca.cmd.state == FunctionState::Running {
        return Err(Status::BadSysState.because(0x10_2001));
    }
    let wanted = hca.init_demand();
    if hca.pages.count() < wanted {
        return Err(Status::BadSysState.because(0x10_2002));
    }
    let endianness = hca.config.facts.value(OpenFact::HostEndianness) == Some(2);
    if endianness && !hca.port.endianness && hca.config.personality == Personality::Pf {
        return Err(Status::BadSysState.because(0x10_2003));
    }
    hca.cmd.state = FunctionState::Running;
    // Number spaces follow the capabilities as they are now.
    hca.drop_objects();
    Ok(())
}

/// Graceful, forced, or prepared-fast teardown; the last two need their capability, and without it
/// answer that they did not.
fn teardown(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use crate::ifc::caps::cmd_hca_cap as g;
    let done = match l::teardown_hca_in::profile.get(input) {
        0 => true,
        1 => hca.caps.general(g::force_teardown) != 0,
        2 => hca.caps.general(g::fast_teardown) != 0,
        _ => return Err(Status::BadParam.because(0x10_3001)),
    };
    if !done {
        l::teardown_hca_out::force_state.set(output, 1);
        return Ok(());
    }
    let live = hca.eqs.len();
    if live != 0 && l::teardown_hca_in::profile.get(input) == 0 {
        hca.bus.complain(format!("TEARDOWN_HCA with {live} event queues alive"));
    }
    hca.cmd.state = FunctionState::Enabled;
    hca.drop_objects();
    hca.reset_ib();
    Ok(())
}

fn query_issi(hca: &mut Hca, _input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    l::query_issi_out::current_issi.set(output, u32::from(hca.cmd.issi));
    let versions = hca.recording().and_then(|recording| recording.issi).unwrap_or(2);
    l::query_issi_out::supported_issi_dw0.set(output, versions);
    Ok(())
}

fn set_issi(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    match l::set_issi_in::current_issi.get(input) {
        version @ 0..=1 => {
            hca.cmd.issi = version as u16;
            Ok(())
        }
        _ => Err(Status::BadParam.because(0x10_b001)),
    }
}

/// "OS,driver,x.yyy.zzzzzz", zero padded.
fn set_driver_version(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let text = l::set_driver_version_in::driver_version.bytes(input);
    let text = text.split(|b| *b == 0).next().unwrap_or(&[]);
    if text.iter().filter(|b| **b == b',').count() < 2 || !text.is_ascii() {
        hca.bus.complain("SET_DRIVER_VERSION: not of the form OS,driver,version");
    }
    Ok(())
}

fn query_adapter(hca: &mut Hca, _input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use l::query_adapter_param_block as p;
    let block = l::query_adapter_out::query_adapter_struct.bytes_mut(output);
    if let Some(adapter) = hca.recording().and_then(|recording| recording.adapter.as_ref()) {
        block.copy_from_slice(&adapter[..p::BYTES]);
        return Ok(());
    }
    p::ieee_vendor_id.set(block, 0x02c9);
    p::vsd_vendor_id.set(block, 0x15b3);
    p::vsd_contd_psid.bytes_mut(block).copy_from_slice(b"MODEL00000000001");
    Ok(())
}

fn special_contexts(_hca: &mut Hca, _input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use l::query_special_contexts_out as s;
    s::resd_lkey.set(output, RESERVED_LKEY);
    s::terminate_scatter_list_mkey.set(output, TERMINATE_MKEY);
    Ok(())
}

fn nop(_hca: &mut Hca, _input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    Ok(())
}

fn take(space: &mut Numbers, output: &mut [u8]) -> Result<(), Refusal> {
    head_out::number.set(output, space.take()?);
    Ok(())
}

fn free(space: &mut Numbers, input: &[u8]) -> Result<(), Refusal> {
    space.free(head_in::number.get(input) & 0xff_ffff)
}

/// A pair of commands over one plain number space.
macro_rules! numbers {
    ($($alloc:literal $up:literal $dealloc:literal $down:literal $space:ident),* $(,)?) => {
        &[$(
            Command {
                opcode: $alloc,
                name: $up,
                input: 8,
                output: 16,
                stage: Stage::Running,
                run: |hca, _, output| take(&mut hca.ids.$space, output),
            },
            Command {
                opcode: $dealloc,
                name: $down,
                input: 12,
                output: 8,
                stage: Stage::Running,
                run: |hca, input, _| free(&mut hca.ids.$space, input),
            },
        )*]
    };
}

/// ALLOC and DEALLOC of things without a context.
pub(crate) const NUMBER_COMMANDS: &[Command] = numbers![
    0x800 "ALLOC_PD" 0x801 "DEALLOC_PD" pd,
    0x802 "ALLOC_UAR" 0x803 "DEALLOC_UAR" uar,
    0x80e "ALLOC_XRCD" 0x80f "DEALLOC_XRCD" xrcd,
    0x816 "ALLOC_TRANSPORT_DOMAIN" 0x817 "DEALLOC_TRANSPORT_DOMAIN" td,
    0x771 "ALLOC_Q_COUNTER" 0x772 "DEALLOC_Q_COUNTER" counter,
];

/// Rows without a number space.
macro_rules! rows {
    ($($opcode:literal $name:literal $input:literal $output:literal $stage:ident $run:ident),* $(,)?) => {
        &[$(Command {
            opcode: $opcode,
            name: $name,
            input: $input,
            output: $output,
            stage: Stage::$stage,
            run: $run,
        }),*]
    };
}

/// The function-wide commands.
pub(crate) const COMMANDS: &[Command] = rows![
    0x101 "QUERY_ADAPTER" 8 272 Enabled query_adapter,
    0x102 "INIT_HCA" 8 8 Enabled init,
    0x103 "TEARDOWN_HCA" 8 16 Running teardown,
    0x104 "ENABLE_HCA" 12 8 Always enable,
    0x105 "DISABLE_HCA" 12 8 Enabled disable,
    0x10a "QUERY_ISSI" 8 112 Enabled query_issi,
    0x10b "SET_ISSI" 12 8 Enabled set_issi,
    0x10d "SET_DRIVER_VERSION" 80 8 Running set_driver_version,
    0x203 "QUERY_SPECIAL_CONTEXTS" 8 32 Running special_contexts,
    0x80d "NOP" 8 8 Enabled nop,
];
