//! Lines of a report of `dat hw-test`: a JSON object each, format 1.

use super::gather::{Gather, pages};
use super::{BadLine, bounds, segments};
use crate::facts::OpenFact;
use serde_json::{Map, Value};

/// Longest string of a field: the longest message as digits.
const LONGEST: usize = 4 << 20;
/// The one format.
const FORMAT: i64 = 1;

/// One line.
struct Line {
    number: usize,
    fields: Map<String, Value>,
}

impl Line {
    fn bad(&self, field: &str, what: impl Into<String>) -> BadLine {
        BadLine::new(self.number, field, what)
    }

    fn get(&self, field: &str) -> Result<&Value, BadLine> {
        self.fields.get(field).ok_or_else(|| self.bad(field, "is missing"))
    }

    fn string(&self, field: &str) -> Result<&str, BadLine> {
        let text = self.get(field)?.as_str().ok_or_else(|| self.bad(field, "is no string"))?;
        if text.len() > LONGEST {
            return Err(self.bad(field, format!("is longer than {LONGEST} characters")));
        }
        Ok(text)
    }

    /// A number, without its fraction.
    #[expect(clippy::cast_possible_truncation, reason = "beyond an i64 is beyond the limits")]
    fn number(&self, field: &str, least: i64, most: i64) -> Result<i64, BadLine> {
        let value = self.get(field)?;
        let whole = value.as_i64().or_else(|| Some(value.as_f64()? as i64));
        let number = whole.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            let said: String = value.to_string().chars().take(40).collect();
            self.bad(field, format!("{said} is no number from {least} to {most}"))
        })
    }

    fn unsigned(&self, field: &str, most: u64) -> Result<u64, BadLine> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.number(field, 0, most).map(|number| 0_u64.wrapping_add_signed(number))
    }

    fn one_of(&self, field: &str, known: &[&str]) -> Result<(), BadLine> {
        if known.contains(&self.string(field)?) {
            return Ok(());
        }
        Err(self.bad(field, format!("is none of {}", known.join(", "))))
    }

    fn bytes(&self, field: &str) -> Result<Vec<u8>, BadLine> {
        let pairs = self.string(field)?.as_bytes().chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(self.bad(field, "an odd number of digits"));
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let bytes = pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes.ok_or_else(|| self.bad(field, "has what is no lower-case hexadecimal digit"))
    }

    fn exactly(&self, field: &str, length: usize) -> Result<Vec<u8>, BadLine> {
        let bytes = self.bytes(field)?;
        if bytes.len() != length {
            return Err(self.bad(field, format!("{} bytes instead of {length}", bytes.len())));
        }
        Ok(bytes)
    }
}

/// Reads a whole report.
pub(super) fn read(text: &str, gather: &mut Gather) -> Result<(), BadLine> {
    for (number, text) in (1..).zip(text.lines()) {
        gather.lines = number;
        if text.trim().is_empty() {
            continue;
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| BadLine::new(number, "object", error.to_string()))?;
        let Value::Object(fields) = value else {
            return Err(BadLine::new(number, "object", "is no JSON object"));
        };
        let line = Line { number, fields };
        if gather.program.is_none() && line.string("kind")? != "head" {
            return Err(line.bad("kind", "the first line is no head"));
        }
        take(&line, gather)?;
    }
    if gather.program.is_none() {
        return Err(BadLine::new(gather.lines.max(1), "kind", "there is no head"));
    }
    Ok(())
}

fn take(line: &Line, gather: &mut Gather) -> Result<(), BadLine> {
    match line.string("kind")? {
        "head" => head(line, gather)?,
        "begin" => {
            line.number("step", 0, 11)?;
            gather.unfinished = Some(line.string("check")?.to_owned());
        }
        "end" => {
            line.number("step", 0, 11)?;
            line.string("check")?;
            line.one_of("result", &["pass", "fail", "skip"])?;
            gather.unfinished = None;
        }
        "iseg" => {
            line.one_of("when", &["before", "after"])?;
            let bytes = line.bytes("bytes")?;
            segments::check_segment(&bytes).map_err(|what| line.bad("bytes", what))?;
            let ready = line.unsigned("us", bounds::TIME)?;
            // After a reset it is the card's own.
            if gather.segment.is_none() || line.string("when")? == "after" {
                gather.segment = Some((line.number, bytes));
                gather.ready = Some(ready);
            }
        }
        "config" => {
            line.string("when")?;
            let bytes = line.bytes("bytes")?;
            segments::check_config(&bytes, gather.device)
                .map_err(|what| line.bad("bytes", what))?;
            gather.pci.get_or_insert((line.number, bytes));
        }
        "command" => command(line, gather)?,
        "pages" => {
            for (field, to) in ["boot", "init", "regular"].into_iter().zip(0..) {
                let count = line.number(field, i32::MIN.into(), i32::MAX.into())?;
                let count = pages(line.number, field, count as i32)?;
                if count < 0 && field != "regular" {
                    return Err(line.bad(field, format!("{count} pages")));
                }
                gather.pages[to].get_or_insert(count);
            }
        }
        "fact" => {
            let name = line.string("fact")?;
            let fact = OpenFact::named(name);
            let fact = fact.ok_or_else(|| line.bad("fact", "no open fact has this name"))?;
            let set = gather.facts.set(fact, line.string("setting")?);
            set.map_err(|error| line.bad("setting", error.to_string()))?;
            gather.known_facts.insert(fact);
        }
        "cqe" => drop(line.exactly("bytes", 64)?),
        "grh" => {
            line.exactly("bytes", 40)?;
            line.one_of("network", &["ipv4", "ipv6"])?;
        }
        "done" => {
            for field in ["passed", "failed", "skipped"] {
                line.number(field, 0, 1_000_000)?;
            }
        }
        // Kinds of a later format.
        _ => {}
    }
    Ok(())
}

fn head(line: &Line, gather: &mut Gather) -> Result<(), BadLine> {
    line.number("format", FORMAT, FORMAT)?;
    let device = line.string("device")?;
    let id = device.strip_prefix("15b3:").filter(|id| id.len() == 4);
    let id = id.and_then(|id| u16::from_str_radix(id, 16).ok());
    let id = id.ok_or_else(|| line.bad("device", "is not 15b3: with four digits"))?;
    if gather.device.is_some_and(|before| before != id) {
        return Err(line.bad("device", "another device than in the first head"));
    }
    gather.device = Some(id);
    gather.card = line.fields.get("card").and_then(Value::as_str).map(str::to_owned);
    gather.program = Some(line.string("program")?.to_owned());
    Ok(())
}

fn command(line: &Line, gather: &mut Gather) -> Result<(), BadLine> {
    let (input, output) = (line.bytes("in")?, line.bytes("out")?);
    for (field, at) in [("opcode", 0), ("op_mod", 6)] {
        let said = line.number(field, 0, 0xffff)?;
        let sent = input.get(at..).and_then(|rest| rest.first_chunk());
        let sent = sent.map(|bytes| i64::from(u16::from_be_bytes(*bytes)));
        if sent != Some(said) {
            return Err(line.bad(field, format!("{said:#x}, and `in` has another")));
        }
    }
    let took = line.unsigned("us", bounds::TIME)?;
    gather.command(line.number, &input, &output, Some(took))
}
