//! Teardown, in the reverse order of bring-up, from wherever that had come to.
//!
//! PRM chapter "Teardown". The orderly way destroys, tears down, takes the firmware's pages back
//! and disables the function: afterwards no byte of host memory is the device's. Where the orderly
//! teardown is refused and the device offers the fast one, that closes the port and stops all DMA
//! at once; the command interface is gone with it, so the pages stay given until the host resets
//! the function. The host should reset in any case before the memory serves another purpose.
//!
//! Once the device is lost, or a command never came back, no further command is tried: each would
//! only wait for its own deadline. All memory then stays taken.

use core::time::Duration;

use dat_core::fault;
use dat_core::provider::Fault;

use crate::device::{Device, Stage, health, note};
use crate::platform::{Fence, Platform};
use crate::prm::cmd::{
    Opcode, TEARDOWN_GRACEFUL, TEARDOWN_PREPARE_FAST, TeardownHcaIn, TeardownHcaOut,
};
use crate::prm::init_seg::{self, CommandQueueWord, NIC_DISABLED};

/// How long the device may take to disable its interface.
const DISABLE_TIMEOUT: Duration = Duration::from_secs(3);

impl<P: Platform> Device<'_, P> {
    /// Gives everything back and stops the device. What was made with it must have been destroyed.
    /// Reports the first failure, and goes on as far as sense allows.
    pub fn close(&mut self) -> Result<(), Fault> {
        let mut first = Ok(());
        if self.stage >= Stage::Running {
            while let Some(queue) = self.event_queues.pop() {
                if self.reachable() {
                    note(&mut first, queue.destroy(self));
                }
            }
            // The command that destroys their queue must not wait for an event in it.
            if let Some(commands) = self.queue.use_polling() {
                if self.reachable() {
                    note(&mut first, commands.destroy(self));
                }
            }
            self.stage = Stage::Doorbells;
        }
        if self.stage >= Stage::Doorbells && self.reachable() {
            note(&mut first, self.dealloc_uar(self.uar));
            self.stage = Stage::Initialized;
        }
        if self.stage >= Stage::Initialized && self.reachable() {
            let graceful = self.teardown_hca(TEARDOWN_GRACEFUL);
            if graceful.is_err() && self.caps.general.fast_teardown() && self.reachable() {
                first = first.and(graceful).and(self.stop_fast());
                self.queue.kill(fault!(
                    Gone,
                    "teardown",
                    "the device was stopped in haste",
                    "reset the device before its memory is used again"
                ));
            } else {
                if graceful.is_ok() {
                    // There are no objects any more.
                    while let Some(memory) = self.disowned.pop() {
                        self.platform.free(memory);
                    }
                }
                note(&mut first, graceful);
            }
            self.stage = Stage::Enabled;
        }
        if self.stage >= Stage::Enabled && self.reachable() {
            note(&mut first, self.take_all_pages());
            if self.reachable() {
                note(&mut first, self.run_switch(Opcode::DisableHca));
            }
            self.stage = Stage::CommandQueue;
        }
        if let Some(fault) = self.queue.dead() {
            if self.stage > Stage::CommandQueue {
                note(&mut first, Err(fault));
            }
        }
        if self.stage == Stage::CommandQueue && self.reachable() {
            self.queue.release();
        }
        self.queue.kill(fault!(BadState, "device", "it is closed", "open it anew"));
        self.stage = Stage::Closed;
        first
    }

    /// It makes sense to send a command.
    fn reachable(&self) -> bool {
        self.queue.dead().is_none() && !self.queue.lost_any()
    }

    fn teardown_hca(&mut self, profile: u16) -> Result<(), Fault> {
        let mut input = TeardownHcaIn::new();
        input.set_profile(profile);
        let mut output = TeardownHcaOut::new();
        self.exec(Opcode::TeardownHca, 0, 0, &mut input.0, &mut output.0)?;
        // Real firmware answers status 0 and refuses by this bit.
        if profile != TEARDOWN_GRACEFUL && output.state() {
            return Err(fault!(BadState, "", "the fast teardown was refused", "reset the device")
                .during(Opcode::TeardownHca.name()));
        }
        Ok(())
    }

    /// TEARDOWN_HCA fast, then the interface off.
    pub(crate) fn stop_fast(&mut self) -> Result<(), Fault> {
        self.teardown_hca(TEARDOWN_PREPARE_FAST)?;
        let platform = self.platform;
        let mut word = CommandQueueWord(health::read(platform, init_seg::CMDQ_ADDR_L_SZ));
        word.set_nic_interface(NIC_DISABLED);
        health::write(platform, init_seg::CMDQ_ADDR_L_SZ, word.0);
        // ORDER: the request to stop leaves the CPU before the loads that wait for it to be
        // granted.
        platform.fence(Fence::AfterDoorbell);
        let deadline = health::clock(platform) + DISABLE_TIMEOUT;
        loop {
            let now = health::clock(platform);
            let word = CommandQueueWord(health::read(platform, init_seg::CMDQ_ADDR_L_SZ));
            if word.nic_interface() == NIC_DISABLED {
                return Ok(());
            }
            if now >= deadline {
                return Err(fault!(
                    Timeout,
                    "teardown",
                    "the device does not disable its interface",
                    "reset the device"
                ));
            }
            platform.relax();
        }
    }
}
