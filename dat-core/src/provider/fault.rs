//! Failures: one small value with everything the device said, and the words for it elsewhere.
//!
//! A failure passes through many hands before somebody reads it, and through far more that only look whether there was
//! one. So a [`Fault`] holds numbers, and one reference to the words that never change, which [`fault!`](crate::fault!)
//! puts into read-only memory. Whoever does not print pays for no formatting.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

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

/// A kind of object, by a provider's own numbers; [`Words::read`] knows its name. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object(pub u8);

impl Object {
    /// None in particular.
    pub const NONE: Self = Self(0);
}

/// The one kind of object that dat-core itself finds at fault.
pub(crate) const QP: Object = Object(1);

/// What dat-core's own words leave open.
pub(crate) fn plain(fault: &Fault, part: Part) -> &'static str {
    match part {
        Part::Object if fault.object_kind() == QP => "QP",
        Part::Operation | Part::Object | Part::Cause | Part::Advice => "",
    }
}

/// [`Words::read`] of failures that have all their words in [`Words::text`].
#[must_use]
pub fn no_more_words(_: &Fault, _: Part) -> &'static str {
    ""
}

/// What of a failure has no words of its own in [`Words::text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What was being done.
    Operation,
    /// The kind of object it was done to.
    Object,
    /// The cause.
    Cause,
    /// What to do about it.
    Advice,
}

/// The words that failures of one sort have in common.
#[derive(Debug)]
pub struct Words {
    /// The class.
    kind: FaultKind,
    /// They are about a network address, not about an object and what the device said of it.
    address: bool,
    /// Operation, cause and advice, with a zero character after each of the first two. What is empty is [`Words::read`]'s.
    text: &'static str,
    /// Finds words by what a fault holds; empty if there are none.
    read: fn(&Fault, Part) -> &'static str,
}

impl Words {
    /// Words of a failure of `kind`. `text` is operation, cause and advice, with a zero character after each of the first
    /// two; what is empty there is asked of `read`, and what that leaves empty stays so.
    ///
    /// Compiled with `--cfg dat_silent` there are none: for firmware that prints nothing. A fault keeps its kind and its
    /// numbers then.
    #[must_use]
    pub const fn new(
        kind: FaultKind,
        text: &'static str,
        read: fn(&Fault, Part) -> &'static str,
    ) -> Self {
        let silent = cfg!(dat_silent);
        Self {
            kind,
            address: false,
            text: if silent { "" } else { text },
            read: if silent { no_more_words } else { read },
        }
    }

    /// The same for failures that concern a network address, and no object.
    #[must_use]
    pub const fn of_address(mut self) -> Self {
        self.address = true;
        self
    }
}

/// One failure, with everything the device said.
///
/// Prints as `QP 0x4d: RTR2RTS_QP refused: bad parameter (status 3, syndrome 0x4bb88f); set --mtu 1024`.
#[derive(Clone, Copy)]
pub struct Fault {
    words: &'static Words,
    /// The network address, or the object's number and the syndrome, and then the fields below.
    detail: [u64; 2],
}

/// Where the fields of the second half stand.
const STATUS: u32 = 0;
const OBJECT: u32 = 8;
const COMMAND: u32 = 16;
const VARIANT: u32 = 32;

/// Makes a [`Fault`] whose words are literals:
/// `fault!(read, Resources, "operation", "cause", "advice")`; advice may be missing, the operation empty.
///
/// With `at` and an address in front it is about that network address:
/// `fault!(at address, read, Unreachable, "operation", "cause")`.
#[macro_export]
macro_rules! fault {
    (at $address:expr, $read:expr, $kind:ident, $operation:literal, $cause:literal $(, $advice:literal)? $(,)?) => {
        $crate::provider::Fault::at(
            const {
                &$crate::provider::Words::new(
                    $crate::provider::FaultKind::$kind,
                    concat!($operation, "\0", $cause, "\0" $(, $advice)?),
                    $read,
                )
                .of_address()
            },
            $address,
        )
    };
    ($read:expr, $kind:ident, $operation:literal, $cause:literal $(, $advice:literal)? $(,)?) => {
        $crate::provider::Fault::new(
            const {
                &$crate::provider::Words::new(
                    $crate::provider::FaultKind::$kind,
                    concat!($operation, "\0", $cause, "\0" $(, $advice)?),
                    $read,
                )
            },
        )
    };
}

impl Fault {
    /// A fault in these words, with nothing from the device yet.
    #[must_use]
    pub const fn new(words: &'static Words) -> Self {
        Self {
            words,
            detail: [0; 2],
        }
    }

    /// A fault in these words, which are about an address.
    #[must_use]
    pub const fn at(words: &'static Words, address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        Self {
            words,
            detail: halves(bits),
        }
    }

    /// Its class.
    #[must_use]
    pub const fn kind(&self) -> FaultKind {
        self.words.kind
    }

    /// Sets a field of the second half; there is none beside an address.
    const fn tagged(mut self, at: u32, mask: u64, value: u64) -> Self {
        if !self.words.address {
            self.detail[1] = self.detail[1] & !(mask << at) | (value & mask) << at;
        }
        self
    }

    const fn tag(&self, at: u32, mask: u64) -> u64 {
        if self.words.address {
            0
        } else {
            self.detail[1] >> at & mask
        }
    }

    /// Names the object it happened to.
    #[must_use]
    pub const fn of(mut self, object: Object, number: u32) -> Self {
        if !self.words.address {
            self.detail[0] = (number as u64) << 32 | self.syndrome() as u64;
        }
        self.tagged(OBJECT, 0xff, object.0 as u64)
    }

    /// What the device said: its status byte and its syndrome.
    #[must_use]
    pub const fn said(mut self, status: u8, syndrome: u32) -> Self {
        if !self.words.address {
            self.detail[0] = self.detail[0] & !0xffff_ffff | syndrome as u64;
        }
        self.tagged(STATUS, 0xff, status as u64)
    }

    /// Which command failed, by the provider's own number; 0 is none.
    #[must_use]
    pub const fn during(self, command: u16) -> Self {
        self.tagged(COMMAND, 0xffff, command as u64)
    }

    /// Which of several causes it was, where [`Words::read`] tells them apart by a number.
    #[must_use]
    pub const fn variant_of(self, variant: u8) -> Self {
        self.tagged(VARIANT, 0xff, variant as u64)
    }

    /// The command that failed, by the provider's own number; 0 if none.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    pub const fn command(&self) -> u16 {
        self.tag(COMMAND, 0xffff) as u16
    }

    /// Which of several causes it was.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    pub const fn variant(&self) -> u8 {
        self.tag(VARIANT, 0xff) as u8
    }

    /// The kind of object, by the provider's own number.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    pub const fn object_kind(&self) -> Object {
        Object(self.tag(OBJECT, 0xff) as u8)
    }

    /// The object's number, 0 if there is none.
    #[must_use]
    pub const fn number(&self) -> u32 {
        if self.words.address {
            0
        } else {
            (self.detail[0] >> 32) as u32
        }
    }

    /// The network address it concerns, if any; an IPv4 address always as such.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        if self.words.address {
            let bits = (self.detail[0] as u128) << 64 | self.detail[1] as u128;
            Some(Ipv6Addr::from_bits(bits).to_canonical())
        } else {
            None
        }
    }

    /// The device's status byte, 0 if it gave none.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    pub const fn status(&self) -> u8 {
        self.tag(STATUS, 0xff) as u8
    }

    /// The device's syndrome, 0 if it gave none.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn syndrome(&self) -> u32 {
        if self.words.address {
            0
        } else {
            self.detail[0] as u32
        }
    }

    /// What was being done: a command name, a register, a step.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.part(Part::Operation)
    }

    /// Kind of object it was done to, empty if none.
    #[must_use]
    pub fn object(&self) -> &'static str {
        self.part(Part::Object)
    }

    /// The cause in words.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        self.part(Part::Cause)
    }

    /// What to do about it, empty if nothing is known.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        self.part(Part::Advice)
    }

    fn part(&self, part: Part) -> &'static str {
        let mut texts = self.words.text.split('\0');
        let own = match part {
            // A command's own name says more than what it was a part of.
            Part::Operation if self.command() != 0 => None,
            Part::Operation => texts.next(),
            Part::Cause => texts.nth(1),
            Part::Advice => texts.nth(2),
            Part::Object => None,
        };
        match own {
            Some(text) if !text.is_empty() => text,
            Some(_) | None => (self.words.read)(self, part),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves")]
const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

impl PartialEq for Fault {
    fn eq(&self, other: &Self) -> bool {
        (self.kind(), self.detail, self.words.text)
            == (other.kind(), other.detail, other.words.text)
    }
}

impl Eq for Fault {}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({:?}, {self})", self.kind())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.object().is_empty() {
            write!(f, "{} {:#x}: ", self.object(), self.number())?;
        }
        if let Some(address) = self.address() {
            write!(f, "{address}: ")?;
        }
        write!(f, "{}: {}", self.operation(), self.cause())?;
        if self.status() != 0 || self.syndrome() != 0 {
            write!(
                f,
                " (status {}, syndrome {:#x})",
                self.status(),
                self.syndrome()
            )?;
        }
        if !self.advice().is_empty() {
            write!(f, "; {}", self.advice())?;
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

    fn read(fault: &Fault, part: Part) -> &'static str {
        match part {
            Part::Object if fault.object_kind() == Object(1) => "QP",
            Part::Operation if fault.command() == 0x504 => "RTR2RTS_QP",
            Part::Operation | Part::Object | Part::Cause | Part::Advice => "",
        }
    }

    #[test]
    fn it_holds_what_it_was_given_and_stays_small() {
        let fault = fault!(read, BadParameter, "", "bad parameter", "set --mtu 1024")
            .said(3, 0x4b_b88f)
            .of(Object(1), 0x4d)
            .during(0x504)
            .variant_of(7);
        assert_eq!((fault.status(), fault.syndrome()), (3, 0x4b_b88f));
        assert_eq!(
            (fault.number(), fault.command(), fault.variant()),
            (0x4d, 0x504, 7)
        );
        assert_eq!(
            fault.to_string(),
            "QP 0x4d: RTR2RTS_QP: bad parameter (status 3, syndrome 0x4bb88f); set --mtu 1024"
        );
        assert!(size_of::<Fault>() == 24 && size_of::<Result<(), Fault>>() == 24);
    }

    #[test]
    fn an_address_comes_back_in_its_family() {
        for address in ["192.168.7.2", "fe80::1"] {
            let address: IpAddr = address.parse().unwrap();
            let fault = fault!(at address, read, Unreachable, "resolve", "nobody answered");
            assert_eq!((fault.address(), fault.object()), (Some(address), ""));
            assert_eq!(
                fault.to_string(),
                std::format!("{address}: resolve: nobody answered")
            );
        }
    }
}
