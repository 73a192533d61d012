//! Failures: one small value with what the device said, and the words for it elsewhere.
//!
//! A failure passes through many hands before somebody reads it, and through far more that only
//! look whether there was one. So a [`Fault`] is two machine words, which travel in registers: a
//! reference to what never changes, which [`fault!`](crate::fault!) puts into read-only memory, and
//! the numbers. Whoever does not print pays for no formatting.
//!
//! Three forms of numbers share that one word ([`Form`]): there is not room for all of it at once,
//! and never a need.

use core::fmt;
use core::net::IpAddr;
use core::net::Ipv4Addr;

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

/// A kind of object, by a provider's own numbers; its [`Vocabulary`] knows the name. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object(pub u8);

impl Object {
    /// None in particular.
    pub const NONE: Self = Self(0);
}

/// The one kind of object that dat-core itself finds at fault.
pub(crate) const QP: Object = Object(1);

/// What dat-core's own words leave open.
pub(crate) static PLAIN: Vocabulary = Vocabulary::new(plain);

fn plain(fault: &Fault, part: Part) -> &'static str {
    match part {
        Part::Object if fault.object_kind() == QP => "QP",
        Part::Operation | Part::Object | Part::Cause | Part::Advice => "",
    }
}

/// The vocabulary of failures that have all their words in [`Words::new`].
pub static NO_MORE_WORDS: Vocabulary = Vocabulary::new(no_more_words);

const fn no_more_words(_: &Fault, _: Part) -> &'static str {
    ""
}

/// What of a failure has no words of its own in [`Words::new`].
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

/// Finds words, and if need be the class, by the numbers that a fault holds.
#[derive(Debug)]
pub struct Vocabulary {
    words: fn(&Fault, Part) -> &'static str,
    kind: fn(&Fault) -> FaultKind,
}

impl Vocabulary {
    /// Words by this function.
    #[must_use]
    pub const fn new(words: fn(&Fault, Part) -> &'static str) -> Self {
        Self { words, kind: |_| FaultKind::Nonsense }
    }

    /// The class by this function too, where [`Words::answer`] leaves it open.
    #[must_use]
    pub const fn with_kind(self, kind: fn(&Fault) -> FaultKind) -> Self {
        Self { words: self.words, kind }
    }
}

/// What the numbers of a failure are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// What the driver found by itself: an object's number in 32 bits, command, kind of object, a
    /// byte of syndrome.
    Own,
    /// What the device said: syndrome, 24 bits of the object's number, status. Command and kind of
    /// object are in the words.
    Answer,
    /// A network address: as much of it as is its own on a link.
    Host,
}

/// A network address as a failure names it: an IPv4 address, or the lower half of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(u64);

impl Host {
    const fn of(address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        Self(bits as u64)
    }

    /// The IPv4 address, if it is one.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn v4(self) -> Option<Ipv4Addr> {
        if self.0 >> 32 == 0xffff { Some(Ipv4Addr::from_bits(self.0 as u32)) } else { None }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.v4() {
            Some(v4) => fmt::Display::fmt(&v4, f),
            None => {
                let [a, b, c, d] = [48, 32, 16, 0].map(|at| self.0 >> at & 0xffff);
                write!(f, "\u{2026}:{a:x}:{b:x}:{c:x}:{d:x}")
            }
        }
    }
}

/// The words that failures of one sort have in common.
#[derive(Debug)]
pub struct Words {
    /// Operation, cause and advice, with a zero character after each of the first two. What is
    /// empty is the vocabulary's.
    text: &'static str,
    vocabulary: &'static Vocabulary,
    /// The class, if it does not depend on what the device said.
    kind: Option<FaultKind>,
    form: Form,
    /// Of answers only, where the two hold for all failures of the sort.
    object: Object,
    command: u16,
}

impl Words {
    /// Words of a failure of `kind`. `text` is operation, cause and advice, with a zero character
    /// after each of the first two; what is empty there is asked of `vocabulary`, and what that
    /// leaves empty stays so.
    #[must_use]
    pub const fn new(kind: FaultKind, text: &'static str, vocabulary: &'static Vocabulary) -> Self {
        Self {
            text,
            vocabulary,
            kind: Some(kind),
            form: Form::Own,
            object: Object::NONE,
            command: 0,
        }
    }

    /// The same for what the device answers about an object of one kind, during one command (0:
    /// none).
    #[must_use]
    pub const fn said(mut self, object: Object, command: u16) -> Self {
        self.form = Form::Answer;
        self.object = object;
        self.command = command;
        self
    }

    /// The same for failures that concern a network address, and no object.
    #[must_use]
    pub const fn of_host(mut self) -> Self {
        self.form = Form::Host;
        self
    }

    /// What the device answers to a command, of the class that the vocabulary finds. Texts as in
    /// [`Words::new`].
    #[must_use]
    pub const fn answer(
        object: Object,
        command: u16,
        text: &'static str,
        vocabulary: &'static Vocabulary,
    ) -> Self {
        Self { text, vocabulary, kind: None, form: Form::Answer, object, command }
    }
}

/// One failure, with what the device said.
///
/// Prints as `QP 0x4d: RTR2RTS_QP refused: bad parameter (status 3, syndrome 0x4bb88f); set --mtu
/// 1024`.
#[derive(Clone, Copy)]
pub struct Fault {
    words: &'static Words,
    /// See [`Form`]; the fields are named there from the top.
    numbers: u64,
}

/// Makes a [`Fault`] whose words are literals:
/// `fault!(vocabulary, Resources, "operation", "cause", "advice")`; advice may be missing, the
/// operation empty.
///
/// With `at` and an address in front it is about that network address:
/// `fault!(at address, vocabulary, Unreachable, "operation", "cause")`.
#[macro_export]
macro_rules! fault {
    (at $address:expr, $vocabulary:expr, $kind:ident, $operation:literal, $cause:literal $(, $advice:literal)? $(,)?) => {
        $crate::provider::Fault::at(
            const {
                &$crate::provider::Words::new(
                    $crate::provider::FaultKind::$kind,
                    concat!($operation, "\0", $cause, "\0" $(, $advice)?),
                    &$vocabulary,
                )
                .of_host()
            },
            $address,
        )
    };
    ($vocabulary:expr, $kind:ident, $operation:literal, $cause:literal $(, $advice:literal)? $(,)?) => {
        $crate::provider::Fault::new(
            const {
                &$crate::provider::Words::new(
                    $crate::provider::FaultKind::$kind,
                    concat!($operation, "\0", $cause, "\0" $(, $advice)?),
                    &$vocabulary,
                )
            },
        )
    };
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "fields of a word, each masked or shifted to its width"
)]
impl Fault {
    /// A fault in these words, with no numbers yet.
    #[must_use]
    pub const fn new(words: &'static Words) -> Self {
        Self { words, numbers: 0 }
    }

    /// A fault in these words, which are about an address.
    #[must_use]
    #[inline(never)]
    pub const fn at(words: &'static Words, address: IpAddr) -> Self {
        Self { words, numbers: Host::of(address).0 }
    }

    /// Two words that mean something to dat-core alone.
    pub(crate) const fn of_word(words: &'static Words, word: u32) -> Self {
        Self { words, numbers: word as u64 }
    }

    /// Its second word, if the first is this.
    pub(crate) fn word(&self, words: &'static Words) -> Option<u32> {
        core::ptr::eq(self.words, words).then_some(self.numbers as u32)
    }

    /// Its class.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self.words.kind {
            Some(kind) => kind,
            None => (self.words.vocabulary.kind)(self),
        }
    }

    /// Names the object it happened to. An answer's words know the kind.
    #[must_use]
    #[inline(never)]
    pub const fn of(mut self, object: Object, number: u32) -> Self {
        let n = self.numbers;
        self.numbers = match self.words.form {
            Form::Own => n & 0xffff_00ff | (number as u64) << 32 | (object.0 as u64) << 8,
            Form::Answer => n & !0xffff_ff00 | ((number & 0xff_ffff) << 8) as u64,
            Form::Host => n,
        };
        self
    }

    /// What the device said: its status byte and its syndrome. Of what is no answer only a byte of
    /// the syndrome stays.
    #[must_use]
    pub const fn said(mut self, status: u8, syndrome: u32) -> Self {
        let n = self.numbers;
        self.numbers = match self.words.form {
            Form::Own => n & !0xff | (syndrome & 0xff) as u64,
            Form::Answer => n & 0xffff_ff00 | (syndrome as u64) << 32 | status as u64,
            Form::Host => n,
        };
        self
    }

    /// Which command failed, by the provider's own number; 0 is none. An answer's words know it.
    #[must_use]
    #[inline(never)]
    pub const fn during(mut self, command: u16) -> Self {
        if let Form::Own = self.words.form {
            self.numbers = self.numbers & !0xffff_0000 | (command as u64) << 16;
        }
        self
    }

    /// The command that failed, by the provider's own number; 0 if none.
    #[must_use]
    pub const fn command(&self) -> u16 {
        match self.words.form {
            Form::Own => (self.numbers >> 16) as u16,
            Form::Answer => self.words.command,
            Form::Host => 0,
        }
    }

    /// The kind of object, by the provider's own number.
    #[must_use]
    pub const fn object_kind(&self) -> Object {
        match self.words.form {
            Form::Own => Object((self.numbers >> 8) as u8),
            Form::Answer => self.words.object,
            Form::Host => Object::NONE,
        }
    }

    /// The object's number, 0 if there is none.
    #[must_use]
    pub const fn number(&self) -> u32 {
        match self.words.form {
            Form::Own => (self.numbers >> 32) as u32,
            Form::Answer => self.numbers as u32 >> 8,
            Form::Host => 0,
        }
    }

    /// The network address it concerns, if any.
    #[must_use]
    pub const fn host(&self) -> Option<Host> {
        match self.words.form {
            Form::Own | Form::Answer => None,
            Form::Host => Some(Host(self.numbers)),
        }
    }

    /// The device's status byte, 0 if it gave none.
    #[must_use]
    pub const fn status(&self) -> u8 {
        match self.words.form {
            Form::Answer => self.numbers as u8,
            Form::Own | Form::Host => 0,
        }
    }

    /// The device's syndrome, 0 if it gave none.
    #[must_use]
    pub const fn syndrome(&self) -> u32 {
        match self.words.form {
            Form::Own => self.numbers as u8 as u32,
            Form::Answer => (self.numbers >> 32) as u32,
            Form::Host => 0,
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
        let own = match part {
            // A command's own name says more than what it was a part of.
            Part::Operation if self.words.form == Form::Own && self.command() != 0 => "",
            Part::Operation => nth(self.words.text, 0),
            Part::Cause => nth(self.words.text, 1),
            Part::Advice => nth(self.words.text, 2),
            Part::Object => "",
        };
        if own.is_empty() { (self.words.vocabulary.words)(self, part) } else { own }
    }
}

/// The text of that place among texts with a zero character after each; empty if there are fewer. A
/// list of texts in this form takes their bytes and no more.
#[must_use]
#[inline(never)]
pub fn nth(texts: &'static str, place: usize) -> &'static str {
    texts.split('\0').nth(place).unwrap_or("")
}

impl PartialEq for Fault {
    fn eq(&self, other: &Self) -> bool {
        (self.kind(), self.numbers, self.words.text)
            == (other.kind(), other.numbers, other.words.text)
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
        if let Some(host) = self.host() {
            write!(f, "{host}: ")?;
        }
        write!(f, "{}: {}", self.operation(), self.cause())?;
        if self.status() != 0 || self.syndrome() != 0 {
            write!(f, " (status {}, syndrome {:#x})", self.status(), self.syndrome())?;
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

    static READ: Vocabulary = Vocabulary::new(read).with_kind(|fault| match fault.status() {
        3 => FaultKind::BadParameter,
        _ => FaultKind::Nonsense,
    });

    fn read(fault: &Fault, part: Part) -> &'static str {
        match part {
            Part::Object if fault.object_kind() == Object(1) => "QP",
            Part::Operation if fault.command() == 0x504 => "RTR2RTS_QP",
            Part::Cause => "bad parameter",
            Part::Advice => "set --mtu 1024",
            Part::Operation | Part::Object => "",
        }
    }

    #[test]
    fn an_answer_holds_all_of_it_in_two_words() {
        static ANSWER: Words = Words::answer(Object(1), 0x504, "", &READ);
        let fault = Fault::new(&ANSWER).of(Object(1), 0x12_34_56_4d);
        let fault = fault.said(3, 0xf04b_b88f).during(0x777);
        assert_eq!((fault.status(), fault.syndrome()), (3, 0xf04b_b88f));
        assert_eq!((fault.number(), fault.command()), (0x34_56_4d, 0x504));
        assert_eq!(fault.kind(), FaultKind::BadParameter);
        let fault = fault.of(Object(1), 0x4d);
        assert_eq!(
            fault.to_string(),
            "QP 0x4d: RTR2RTS_QP: bad parameter (status 3, syndrome 0xf04bb88f); set --mtu 1024"
        );
        assert!(size_of::<Fault>() == 16 && size_of::<Result<u64, Fault>>() == 16);
    }

    #[test]
    fn only_a_queue_pair_is_called_one() {
        let fault = fault!(PLAIN, Gone, "a step", "a cause");
        assert_eq!(fault.of(QP, 5).object(), "QP");
        assert_eq!(fault.of(Object(2), 5).object(), "");
    }

    #[test]
    fn what_is_no_answer_names_any_object_and_command() {
        let fault = fault!(READ, Gone, "", "a cause")
            .said(0, 0x1_07)
            .of(Object(1), 0xffff_ff4d)
            .during(0x504);
        assert_eq!((fault.status(), fault.syndrome()), (0, 7));
        assert_eq!((fault.number(), fault.command()), (0xffff_ff4d, 0x504));
        assert_eq!((fault.object(), fault.kind()), ("QP", FaultKind::Gone));
        assert_eq!(
            fault.to_string(),
            "QP 0xffffff4d: RTR2RTS_QP: a cause (status 0, syndrome 0x7); set --mtu 1024"
        );
    }

    #[test]
    fn a_host_reads_as_its_address_or_the_half_that_is_its_own() {
        for (address, text) in [
            ("192.168.7.2", "192.168.7.2"),
            ("fe80::211:22ff:fe33:4455", "\u{2026}:211:22ff:fe33:4455"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let fault = fault!(at address, NO_MORE_WORDS, Unreachable, "resolve", "no answer");
            let fault = fault.of(Object(1), 2).said(3, 4).during(5);
            assert_eq!((fault.number(), fault.command(), fault.object()), (0, 0, ""));
            assert_eq!(fault.to_string(), std::format!("{text}: resolve: no answer"));
        }
    }
}
