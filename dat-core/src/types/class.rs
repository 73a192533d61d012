//! Classes of packets: what switches and the egress port tell them apart by.

use crate::types::flags::Qos;

/// Traffic class and priority of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// TOS of IPv4, traffic class of IPv6: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// 802.1p priority, 0 to 7: in the VLAN tag, and of the egress queue. The service level of CM
    /// messages; on InfiniBand of all packets, 0 to 15.
    pub priority: u8,
}

/// The class of each quality of service that a connection can be asked for with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Of `DAT_QOS_BEST_EFFORT`, and of all that belongs to no connection.
    pub best_effort: Class,
    /// Of `DAT_QOS_HIGH_THROUGHPUT`, if that is supported.
    pub high_throughput: Option<Class>,
    /// Of `DAT_QOS_LOW_LATENCY`.
    pub low_latency: Option<Class>,
    /// Of `DAT_QOS_ECONOMY`.
    pub economy: Option<Class>,
    /// Of `DAT_QOS_PREMIUM`.
    pub premium: Option<Class>,
}

impl Classes {
    /// Returns the class of a quality of service; `None` if it is not supported.
    #[must_use]
    pub const fn of(&self, qos: Qos) -> Option<Class> {
        match qos {
            Qos::BestEffort => Some(self.best_effort),
            Qos::HighThroughput => self.high_throughput,
            Qos::LowLatency => self.low_latency,
            Qos::Economy => self.economy,
            Qos::Premium => self.premium,
        }
    }

    /// Gives a quality of service a class.
    pub const fn set(&mut self, qos: Qos, class: Class) {
        match qos {
            Qos::BestEffort => self.best_effort = class,
            Qos::HighThroughput => self.high_throughput = Some(class),
            Qos::LowLatency => self.low_latency = Some(class),
            Qos::Economy => self.economy = Some(class),
            Qos::Premium => self.premium = Some(class),
        }
    }

    /// Returns the supported ones as bits of `DAT_QOS`.
    #[must_use]
    pub fn supported(&self) -> u32 {
        let all = Qos::ALL.iter().filter(|qos| self.of(**qos).is_some());
        all.fold(0, |bits, qos| bits | *qos as u32)
    }

    /// Every priority is one.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        Qos::ALL.iter().all(|qos| self.of(*qos).is_none_or(|class| class.priority <= 7))
    }
}
