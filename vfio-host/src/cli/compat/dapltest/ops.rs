//! The operations of a test, as they stand at the end of the arguments.

use super::super::super::failure::Failure;
use super::wire::{OPS, Op, Transfer};

/// What is moved if nobody says how much.
pub(super) const SIZE: u32 = 4096;
pub(super) const SEGMENTS: u32 = 1;

/// Operations of a transaction test: `client|server SR|RR|RW [BYTES [SEGMENTS]] [-f]`, one after
/// the other.
pub(super) fn transaction(words: &[String], validate: bool) -> Result<Vec<Op>, Failure> {
    let mut ops = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(who) = words.next() {
        let by_server = match who {
            "server" => true,
            "client" => false,
            other => {
                return Err(wrong(format!(
                    "an operation begins with client or server, not with {other}"
                )));
            }
        };
        let transfer = words.next().unwrap_or("nothing");
        let transfer = Transfer::named(transfer).ok_or_else(|| {
            wrong(format!("{who} is followed by SR, RR or RW, not by {transfer}"))
        })?;
        let mut number = || {
            let digits = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
            words.next_if(digits).map(count).transpose()
        };
        let size = number()?.unwrap_or(SIZE);
        let segments = number()?.unwrap_or(SEGMENTS);
        let deferred = words.next_if_eq(&"-f").is_some();
        if deferred && transfer != Transfer::Send {
            return Err(wrong("-f goes with SR only".into()));
        }
        ops.push(Op { by_server, transfer, segments, size, deferred });
    }
    check(&ops)?;
    if validate {
        // The server says that it has moved everything, the client that it has looked, the server
        // that it has as well.
        ops.extend([true, false, true].map(|by_server| Op {
            by_server,
            transfer: Transfer::Send,
            segments: SEGMENTS,
            size: SIZE,
            deferred: false,
        }));
    }
    if ops.len() > OPS {
        return Err(wrong(format!(
            "a test has {OPS} operations at the most, with the three of -V; this one has {}",
            ops.len()
        )));
    }
    Ok(ops)
}

/// A test that both sides can carry out.
pub(super) fn check(ops: &[Op]) -> Result<(), Failure> {
    let mut waiting = 0_u32;
    for op in ops.iter().filter(|op| op.deferred) {
        waiting = if op.by_server {
            waiting
                .checked_sub(1)
                .ok_or_else(|| wrong("a server SR -f has no client SR -f before it".into()))?
        } else {
            waiting + 1
        };
    }
    if waiting != 0 {
        return Err(wrong("a client SR -f has no server SR -f behind it".into()));
    }
    let sends =
        |by_server| ops.iter().any(|op| op.transfer == Transfer::Send && op.by_server == by_server);
    if !sends(true) || !sends(false) {
        return Err(wrong(
            "a test needs a server SR and a client SR, so that neither side overtakes the other"
                .into(),
        ));
    }
    Ok(())
}

/// The operation of a performance test: `RR|RW [BYTES [SEGMENTS]]`.
pub(super) fn performance(words: &[String]) -> Result<(Transfer, u32, u32), Failure> {
    let mut words = words.iter().map(String::as_str);
    let transfer = words.next().unwrap_or("nothing");
    let transfer = match Transfer::named(transfer) {
        Some(transfer @ (Transfer::Read | Transfer::Write)) => transfer,
        Some(Transfer::Send) | None => {
            return Err(wrong(format!(
                "the operation of a performance test is RR or RW, not {transfer}"
            )));
        }
    };
    let size = words.next().map(count).transpose()?.unwrap_or(SIZE);
    let segments = words.next().map(count).transpose()?.unwrap_or(SEGMENTS);
    if let Some(more) = words.next() {
        return Err(wrong(format!(
            "a performance test has one operation; there is {more} behind it"
        )));
    }
    Ok((transfer, size, segments))
}

fn count(word: &str) -> Result<u32, Failure> {
    match word.parse() {
        Ok(number @ 1..) => Ok(number),
        Ok(0) | Err(_) => Err(wrong(format!("{word} is no number of bytes or segments"))),
    }
}

fn wrong(cause: String) -> Failure {
    Failure::usage(cause)
        .remedy("an operation reads like: client SR 256 1 server RW 4096 2 server SR 256 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn op(by_server: bool, transfer: Transfer, size: u32, segments: u32, deferred: bool) -> Op {
        Op { by_server, transfer, segments, size, deferred }
    }

    #[test]
    fn operations_as_scripts_have_them() {
        let text = "client RW 4096 1 server RR client SR 1024 3 -f server SR 256 -f";
        let ops = transaction(&words(text), false).unwrap();
        let wanted = [
            op(false, Transfer::Write, 4096, 1, false),
            op(true, Transfer::Read, 4096, 1, false),
            op(false, Transfer::Send, 1024, 3, true),
            op(true, Transfer::Send, 256, 1, true),
        ];
        assert_eq!(ops, wanted);
        let verified = transaction(&words(text), true).unwrap();
        let barrier = |by_server| op(by_server, Transfer::Send, 4096, 1, false);
        assert_eq!(verified[..4], wanted);
        assert_eq!(verified[4..], [true, false, true].map(barrier));
        assert_eq!(performance(&words("RR 32768 2")), Ok((Transfer::Read, 32768, 2)));
        assert_eq!(performance(&words("RW")), Ok((Transfer::Write, 4096, 1)));
    }

    #[test]
    fn operations_that_make_no_test() {
        for (text, cause) in [
            ("", "needs a server SR"),
            ("client SR", "needs a server SR"),
            ("server SR server SR client RR", "needs a server SR"),
            ("client XX", "not by XX"),
            ("client", "not by nothing"),
            ("SR", "not with SR"),
            ("client SR 0 server SR", "0 is no number"),
            ("client SR 1 1 1 server SR", "not with 1"),
            ("client SR 99999999999 server SR", "99999999999 is no number"),
            ("client RR -f server SR", "-f goes with SR"),
            ("client SR -f server SR", "no server SR -f"),
            ("client SR server SR -f", "no client SR -f"),
            ("server SR -f client SR -f", "no client SR -f"),
        ] {
            let failure = transaction(&words(text), false).unwrap_err();
            assert!(failure.usage && failure.cause.contains(cause), "{failure}");
        }
        let many = words(&"client SR server SR ".repeat(49));
        assert!(transaction(&many, false).is_ok());
        assert!(transaction(&many, true).is_err());
        for text in ["", "SR", "RR 0", "RW 1 1 1", "client RW"] {
            assert!(performance(&words(text)).is_err(), "{text}");
        }
    }
}
