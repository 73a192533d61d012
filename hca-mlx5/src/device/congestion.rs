//! Congestion control of RoCE (ECN and CNPs), which is the firmware's: read, never changed.

use dat_core::provider::Fault;

use crate::device::{Device, optional};
use crate::platform::Platform;
use crate::prm::cmd::Opcode;
use crate::prm::congestion::{
    NOTIFICATION_POINT, NotificationPoint, PARAMS, PARAMS_OUT, QueryCongestionIn,
    QueryCongestionStatusOut, REACTION_POINT,
};

/// Congestion control as the firmware has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// Priorities, one bit each, of which queue pairs send slower when the peer notifies them.
    pub reacts: u8,
    /// Priorities of which marked packets are answered with notifications (CNPs).
    pub notifies: u8,
    /// DSCP of these.
    pub cnp_dscp: u8,
    /// Their 802.1p priority.
    pub cnp_priority: u8,
    /// Least time between two of them, in microseconds.
    pub cnp_interval: u32,
}

impl<P: Platform> Device<'_, P> {
    /// QUERY_CONG_STATUS of each priority and QUERY_CONG_PARAMS; `None` where the function may not
    /// ask.
    pub(crate) fn congestion(&mut self) -> Result<Option<Congestion>, Fault> {
        if !self.caps.general.cc_query_allowed() {
            return Ok(None);
        }
        let mut found = Congestion::default();
        let points =
            [(REACTION_POINT, &mut found.reacts), (NOTIFICATION_POINT, &mut found.notifies)];
        for (protocol, priorities) in points {
            for priority in 0..8 {
                let mut input = QueryCongestionIn::new();
                input.set_priority(priority);
                input.set_cong_protocol(protocol);
                let mut output = QueryCongestionStatusOut::new();
                let op = Opcode::QueryCongStatus;
                if !optional(self.exec(op, 0, priority.into(), &mut input.0, &mut output.0))? {
                    return Ok(None);
                }
                *priorities |= u8::from(output.enable()) << priority;
            }
        }
        let mut input = QueryCongestionIn::new();
        input.set_cong_protocol(NOTIFICATION_POINT);
        let mut output = [0; PARAMS_OUT];
        if !optional(self.exec(Opcode::QueryCongParams, 0, 0, &mut input.0, &mut output))? {
            return Ok(None);
        }
        let cnp = NotificationPoint::read(&output, PARAMS);
        found.cnp_dscp = cnp.cnp_dscp();
        found.cnp_priority = cnp.cnp_802p_prio();
        found.cnp_interval = cnp.min_time_between_cnps();
        Ok(Some(found))
    }
}
