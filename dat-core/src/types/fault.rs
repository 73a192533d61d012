//! Failures of the control path: what was done to which object, what the device answered, why it
//! failed and what to do about it.
//!
//! A [`Fault`] is about a hundred bytes. The data path returns a bare
//! [`DatReturn`](crate::types::dat_return::DatReturn) instead.

use core::fmt;
use core::net::IpAddr;

/// The class of a failure: what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device or the platform has no more of what was asked for.
    Resources,
    /// The request itself was refused.
    BadParameter,
    /// The object is in a state that does not allow it, or still in use.
    BadState,
    /// The device lacks the feature.
    Unsupported,
    /// The device did not answer within its deadline.
    Timeout,
    /// The device is gone or dead (all ones, fatal health).
    Gone,
    /// The device's answer made no sense.
    Nonsense,
    /// Nobody answered for that network address.
    Unreachable,
}

/// One failure, with what the device answered.
///
/// Prints as `QP 0x4d: RTR2RTS_QP: bad parameter (status 3, syndrome 0x4bb88f); set --mtu 1024`.
/// [`fault!`](crate::fault!) makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What the caller can do about it.
    pub kind: FaultKind,
    /// What was being done: a command, a register, a step.
    pub operation: &'static str,
    /// The kind of object that it was done to, empty if none.
    pub object: &'static str,
    /// The object's number, 0 if none.
    pub number: u32,
    /// The device's status byte, 0 if it gave none.
    pub status: u8,
    /// The device's syndrome, 0 if it gave none.
    pub syndrome: u32,
    /// The network address that it concerns.
    pub host: Option<IpAddr>,
    /// The cause.
    pub cause: &'static str,
    /// What to do about it, empty if nothing is known.
    pub advice: &'static str,
}

/// Makes a [`Fault`]: `fault!(Resources, "operation", "cause", "advice")`. The advice may be
/// missing.
#[macro_export]
macro_rules! fault {
    ($kind:ident, $operation:expr, $cause:expr $(, $advice:literal)? $(,)?) => {
        $crate::provider::Fault::new(
            $crate::provider::FaultKind::$kind,
            $operation,
            $cause,
            concat!($($advice)?),
        )
    };
}

impl Fault {
    /// A fault about no object, without an answer of the device.
    #[must_use]
    pub const fn new(
        kind: FaultKind,
        operation: &'static str,
        cause: &'static str,
        advice: &'static str,
    ) -> Self {
        Self {
            kind,
            operation,
            object: "",
            number: 0,
            status: 0,
            syndrome: 0,
            host: None,
            cause,
            advice,
        }
    }

    /// Names the object that it happened to.
    #[must_use]
    pub const fn of(self, object: &'static str, number: u32) -> Self {
        Self { object, number, ..self }
    }

    /// Names what was being done, in place of what stood there.
    #[must_use]
    pub const fn during(self, operation: &'static str) -> Self {
        Self { operation, ..self }
    }

    /// Adds what the device answered.
    #[must_use]
    pub const fn with_answer(self, status: u8, syndrome: u32) -> Self {
        Self { status, syndrome, ..self }
    }

    /// Names the network address that it concerns.
    #[must_use]
    pub const fn at(self, host: IpAddr) -> Self {
        Self { host: Some(host), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.object.is_empty() {
            write!(f, "{} {:#x}: ", self.object, self.number)?;
        }
        if let Some(host) = self.host {
            write!(f, "{host}: ")?;
        }
        write!(f, "{}: {}", self.operation, self.cause)?;
        if self.status != 0 || self.syndrome != 0 {
            write!(f, " (status {}, syndrome {:#x})", self.status, self.syndrome)?;
        }
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

impl core::error::Error for Fault {}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn an_answer_prints_object_cause_and_advice() {
        let fault = fault!(BadParameter, "", "bad parameter", "set --mtu 1024")
            .of("QP", 0x4d)
            .with_answer(3, 0xf04b_b88f)
            .during("RTR2RTS_QP");
        assert_eq!(
            fault.to_string(),
            "QP 0x4d: RTR2RTS_QP: bad parameter (status 3, syndrome 0xf04bb88f); set --mtu 1024"
        );
    }

    #[test]
    fn what_the_driver_finds_prints_without_an_answer() {
        let fault = fault!(Gone, "a step", "a cause");
        assert_eq!(fault.to_string(), "a step: a cause");
        assert_eq!(fault.of("UAR", 0xffff_ff4d).to_string(), "UAR 0xffffff4d: a step: a cause");
        let fault = fault.with_answer(0, 7);
        assert_eq!(fault.to_string(), "a step: a cause (status 0, syndrome 0x7)");
    }

    #[test]
    fn a_host_prints_as_its_address() {
        for text in ["192.168.7.2", "fe80::211:22ff:fe33:4455"] {
            let fault = fault!(Unreachable, "resolve", "no answer").at(text.parse().unwrap());
            assert_eq!(fault.to_string(), std::format!("{text}: resolve: no answer"));
        }
    }

    #[test]
    fn a_result_stays_small_enough_to_return() {
        assert!(size_of::<Result<u64, Fault>>() <= 128);
    }
}
