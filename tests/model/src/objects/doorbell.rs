//! Doorbells in a UAR page: send queues (BlueFlame registers) and CQ arm.
//!
//! A doorbell is the first eight bytes of a buffer, and of those only the queue's number counts:
//! work requests are fetched from the ring, as far as the doorbell record says. A WQE may come along
//! with it (`blueflame.rs`). A doorbell on a page that is not the queue's is a complaint and without
//! effect.

use super::blueflame::Pushed;
use super::device::Device;
use super::traffic;
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::qp::qpc;
use crate::transport::host::QpState;

/// A store of 8 bytes or more into a UAR's BlueFlame registers (0x800 and up).
pub(crate) fn send_doorbell(hca: &mut Hca, uar: u32, offset: usize, bytes: &[u8]) {
    // Each register is two buffers, of 256 bytes by the usual size; what lies deeper in one is WQE
    // data.
    let log = hca.caps.general(cmd_hca_cap::log_bf_reg_size);
    let size = if (7..=12).contains(&log) { 1 << (log - 1) } else { 0x100 };
    let at = offset % size;
    let buffer = (u64::from(uar) << 12) + (offset - at) as u64;
    let stats = &mut hca.bus.stats;
    stats.sq_doorbells += u64::from(at == 0);
    stats.bf_bytes += (bytes.len() as u64).saturating_sub(if at == 0 { 8 } else { 0 });
    if let Some(mut begun) = hca.objects.blueflame.begun_in(buffer) {
        if begun.extend(at, bytes) {
            push(hca, buffer, begun);
            return;
        }
        ring(hca, begun.queue(), None);
    }
    if at != 0 {
        return;
    }
    let none = hca.config.facts.value(OpenFact::BfSize) == Some(0);
    if bytes.len() > 8 && none {
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
    ring_begun(hca, Some(number));
    let pushed = Pushed::begin(bytes, size).filter(|_| !none);
    if hca.objects.blueflame.repeats(buffer, size as u64, pushed.as_ref()) {
        hca.bus.complain(format!(
            "queue {number:#x}: two WQEs in a row through the BlueFlame buffer at {offset:#x} of \
             UAR {uar:#x}: a register's two buffers take turns"
        ));
    }
    match pushed.filter(|_| !hca.config.facts.on(OpenFact::BfData)) {
        Some(pushed) => push(hca, buffer, pushed),
        None => ring(hca, number, None),
    }
}

/// Blocks of a WQE have come: the queue runs when they are all there.
fn push(hca: &mut Hca, buffer: u64, pushed: Pushed) {
    if pushed.is_whole() {
        ring(hca, pushed.queue(), Some(pushed));
    } else {
        hca.objects.blueflame.keep(buffer, pushed);
    }
}

/// Takes WQEs of which only the first blocks came, of that queue or of all, as doorbells.
pub(crate) fn ring_begun(hca: &mut Hca, queue: Option<u32>) {
    while let Some(number) = hca.objects.blueflame.give_up(queue) {
        ring(hca, number, None);
    }
}

/// Runs a queue whose doorbell rang, and with which a WQE may have come.
fn ring(hca: &mut Hca, number: u32, pushed: Option<Pushed>) {
    let Some(qp) = hca.objects.qps.get_mut(&number) else {
        Device::of(hca).run_sq(number, pushed);
        traffic::fail_doomed(hca);
        return;
    };
    match qp.state {
        QpState::Rts | QpState::Sqer | QpState::Err => {
            qp.rung = true;
            qp.pushed = pushed.filter(|_| qp.state == QpState::Rts);
            traffic::with_engine(hca, number, |engine, device| engine.on_doorbell(device));
            // A QP that cannot send yet fetches from the ring when it can.
            if let Some(qp) = hca.objects.qps.get_mut(&number) {
                qp.pushed = None;
            }
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
    let cqn = cq.cqn;
    Device::of(hca).end_session(cqn);
    traffic::fail_doomed(hca);
    let Some(cq) = hca.objects.cqs.get_mut(&cqn) else {
        return;
    };
    let event_read = hca.eqs.has_read(cq.eqn, cq.event_at);
    match cq.arm(hca.bus.now, word, event_read) {
        Ok(true) => Device::of(hca).announce(cqn),
        Ok(false) => {}
        Err(complaint) => hca.bus.complain(complaint),
    }
    Device::of(hca).reschedule_cq(cqn);
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
