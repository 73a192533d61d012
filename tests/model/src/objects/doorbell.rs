//! Doorbells in a UAR page: send queues (BlueFlame registers) and CQ arm.
//!
//! Only the first eight bytes of a BlueFlame register count, and of those only the queue's number:
//! work requests are fetched from the ring, as far as the doorbell record says. A doorbell on a
//! page that is not the queue's is a complaint and without effect.

use super::device::Device;
use super::traffic;
use crate::eq::Event;
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::qp::qpc;
use crate::transport::host::QpState;

/// A store of 8 to 64 bytes into a UAR's BlueFlame registers (0x800 and up).
pub(crate) fn send_doorbell(hca: &mut Hca, uar: u32, offset: usize, bytes: &[u8]) {
    // Each register is two buffers, of 256 bytes by the usual size; what lies deeper in one is WQE
    // data.
    let log = hca.caps.general(cmd_hca_cap::log_bf_reg_size);
    let buffer = if (7..=12).contains(&log) { 1 << (log - 1) } else { 0x100 };
    if !offset.is_multiple_of(buffer) {
        return;
    }
    if bytes.len() > 8 && hca.config.facts.value(OpenFact::BfSize) == Some(0) {
        let n = bytes.len();
        hca.bus.complain(format!("store of {n} bytes on UAR {uar:#x}: there is no BlueFlame"));
    }
    let Some(word) = bytes.get(4..8) else {
        hca.bus.complain(format!("doorbell of {} bytes on UAR {uar:#x}", bytes.len()));
        return;
    };
    let number = u32::from_be_bytes([0, word[0], word[1], word[2]]);
    let page = if let Some(qp) = hca.objects.qps.get(&number) {
        qp.get(qpc::uar_page)
    } else if let Some(sq) = hca.objects.sqs.get(&number) {
        sq.uar
    } else {
        hca.bus.complain(format!("doorbell on UAR {uar:#x} for queue {number:#x}: none such"));
        return;
    };
    if page != uar {
        hca.bus.complain(format!("queue {number:#x} rung on UAR {uar:#x}, created with {page:#x}"));
        return;
    }
    let Some(qp) = hca.objects.qps.get_mut(&number) else {
        Device::of(hca).run_sq(number);
        traffic::fail_doomed(hca);
        return;
    };
    match qp.state {
        QpState::Rts | QpState::Sqer | QpState::Err => {
            qp.rung = true;
            traffic::with_engine(hca, number, |engine, device| engine.on_doorbell(device));
        }
        QpState::Reset | QpState::Init | QpState::Rtr => {
            let state = qp.state;
            hca.bus.complain(format!("QP {number:#x} rung in state {state:?}"));
        }
    }
}

/// Whether arm word `a` is of an earlier request than `b`: by its consumer index, else by its
/// sequence number.
const fn is_behind(a: u32, b: u32) -> bool {
    let index = b.wrapping_sub(a) & 0xff_ffff;
    let sequence = (b >> 28).wrapping_sub(a >> 28) & 3;
    index != 0 && index < 0x80_0000 || index == 0 && (sequence == 1 || sequence == 2)
}

/// A 64-bit store to a UAR's CQ doorbell: arm word and CQ number.
pub(crate) fn cq_arm(hca: &mut Hca, uar: u32, word: u32, cqn: u32) {
    let Some(cq) = hca.objects.cqs.get_mut(&(cqn & 0xff_ffff)) else {
        hca.bus.complain(format!("arm on UAR {uar:#x} for CQ {cqn:#x}: none such"));
        return;
    };
    if cq.uar != uar {
        let page = cq.uar;
        hca.bus.complain(format!("CQ {cqn:#x} armed on UAR {uar:#x}, created with {page:#x}"));
        return;
    }
    // The arm word stands in the record before the doorbell rings; a device may look there instead.
    // Doorbells are posted: by the time one arrives the record may hold a later word already.
    if hca.bus.read_be32(cq.dbr + 4).is_ok_and(|record| is_behind(record, word)) {
        hca.bus.complain(format!("CQ {cqn:#x}: arm doorbell {word:#010x} is not in its record"));
    }
    let event_read = hca.eqs.has_read(cq.eqn, cq.event_at);
    match cq.arm(word, event_read) {
        Ok(true) => {
            let eqn = cq.eqn;
            cq.event_at = hca.eqs.position(eqn);
            let event = Event::completion(cqn & 0xff_ffff);
            hca.eqs.post(&mut hca.bus, eqn, &event);
        }
        Ok(false) => {}
        Err(complaint) => hca.bus.complain(complaint),
    }
}

#[cfg(test)]
mod tests {
    use super::is_behind;

    #[test]
    fn a_record_may_be_ahead_of_its_doorbell_and_not_behind() {
        assert!(!is_behind(0x1000_0005, 0x1000_0005));
        assert!(is_behind(0x1000_0004, 0x2000_0005), "an older index");
        assert!(!is_behind(0x2000_0005, 0x1000_0004), "a newer index");
        assert!(is_behind(0x00ff_ffff, 0x1000_0000), "round the counter");
        assert!(is_behind(0x1000_0005, 0x2000_0005), "an older request");
        assert!(!is_behind(0x2000_0005, 0x1000_0005), "a newer request");
        assert!(!is_behind(0x1100_0005, 0x1000_0005), "for solicited ones");
    }
}
