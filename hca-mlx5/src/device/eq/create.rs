//! CREATE_EQ and DESTROY_EQ.

use dat_core::fault;
use dat_core::provider::Fault;

use super::EventQueue;
use crate::device::{Device, give_up, page_list};
use crate::platform::{Platform, Reach, Span};
use crate::prm;
use crate::prm::At;
use crate::prm::cmd::Opcode;
use crate::prm::eq::{CREATE_EQ_PAGES, CreateEqIn, EQ_CONTEXT, EQE_SIZE, EqContext};

impl EventQueue {
    /// Greatest log2 of the entries.
    pub(crate) const MAX_LOG_SIZE: u8 = 12;
    const MAX_PAGES: usize = (EQE_SIZE << Self::MAX_LOG_SIZE) / 4096;

    /// Makes one of `1 << log_size` entries for the events in `mask`, with interrupts on `vector`.
    /// Not armed.
    pub(crate) fn create<P: Platform>(
        device: &mut Device<'_, P>,
        log_size: u8,
        mask: u64,
        vector: u16,
    ) -> Result<Self, Fault> {
        // 64 entries fill a page; smaller rings would waste the rest of it.
        let log_size = log_size.clamp(6, Self::MAX_LOG_SIZE);
        let platform = device.platform();
        let len = EQE_SIZE << log_size;
        let span = platform.alloc(len, 4096, Reach::ReadWrite).ok_or_else(|| {
            fault!(Resources, "", "no room in the arena", "enlarge the arena")
                .during(Opcode::CreateEq.name())
        })?;
        let number = Self::submit(device, span, log_size, mask, vector)
            // A command without an answer, or a confused firmware, may have made the
            // queue.
            .inspect_err(|fault| give_up(device, span, fault))?;
        // Event queue numbers are 8 bits wide.
        let [.., number] = number.to_be_bytes();
        Ok(Self {
            span,
            log_size,
            number,
            doorbells: device.uar().offset,
            consumer: 0,
            acknowledged: 0,
            armed: None,
        })
    }

    /// CREATE_EQ over a ring whose entries are marked as old. Returns the number.
    fn submit<P: Platform>(
        device: &mut Device<'_, P>,
        span: Span,
        log_size: u8,
        mask: u64,
        vector: u16,
    ) -> Result<u32, Fault> {
        let platform = device.platform();
        let mut input = [0; CREATE_EQ_PAGES + 8 * Self::MAX_PAGES];
        CreateEqIn(&mut input).set_event_bitmask(mask);
        let mut context = EqContext(At::<_, EQ_CONTEXT>(&mut input));
        context.set_log_eq_size(log_size);
        context.set_uar_page(device.uar().number);
        context.set_intr(vector);
        let mut used = CREATE_EQ_PAGES;
        for at in (span.offset..span.offset + span.len).step_by(EQE_SIZE) {
            platform.memory().store32(at + EQE_SIZE - 4, 1u32.to_be());
            if (at - span.offset) % 4096 == 0 {
                let page = page_list::page(platform, at).ok_or_else(|| {
                    fault!(
                        BadParameter,
                        "",
                        "the arena is not page aligned for the device",
                        "map the arena in whole, aligned pages"
                    )
                    .during(Opcode::CreateEq.name())
                })?;
                prm::put(&mut input, used, &page.to_be_bytes());
                used += 8;
            }
        }
        device.make(Opcode::CreateEq, input.get_mut(..used).unwrap_or_default())
    }

    /// Destroys it. The memory stays taken until the teardown if the device may still write it.
    pub(crate) fn destroy<P: Platform>(self, device: &mut Device<'_, P>) -> Result<(), Fault> {
        let result = device.end(Opcode::DestroyEq, u32::from(self.number));
        match result {
            Ok(()) => device.platform().free(self.span),
            Err(_) => device.disown(self.span),
        }
        result
    }
}
