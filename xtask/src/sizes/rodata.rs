//! Whose read-only data it is: that of the code that refers to it.
//!
//! The linker keeps its relocations in the images (`--emit-relocs`), so every reference is known.
//! Read-only data is cut at whatever is referred to; a piece belongs to all that refer to it, be it
//! code or another piece. It is somebody else's only if nothing of the two crates leads to it, and
//! something of others does.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context, Result};

/// A reference: where it stands, and what it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    at: u64,
    to: u64,
}

/// Reads what `readelf -rW` says.
pub(super) fn references(said: &str) -> Result<Vec<Reference>> {
    let mut found = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at, _, kind, value, rest @ ..] = words.as_slice() else {
            continue;
        };
        if !kind.starts_with("R_X86_64_") {
            continue;
        }
        let number = |text: &str| {
            u64::from_str_radix(text, 16).with_context(|| format!("no address: {line}"))
        };
        // Symbol and addend, `.rodata + 11a4`; or a symbol alone.
        let addend = match rest {
            [.., "+", addend] => number(addend)?,
            [.., "-", addend] => number(addend)?.wrapping_neg(),
            _ => 0,
        };
        // Relative to the end of the instruction's address, which is as long as that.
        let relative = kind.contains("PC") || kind.ends_with("PLT32");
        let target = number(value)?.wrapping_add(addend);
        found.push(Reference {
            at: number(at)?,
            to: target.wrapping_add(if relative { 4 } else { 0 }),
        });
    }
    Ok(found)
}

/// How many bytes of `rodata` belong to code of which `ours` holds. What nobody refers to counts
/// too.
pub(super) fn owned(
    rodata: Range<u64>,
    references: &[Reference],
    ours: impl Fn(u64) -> bool,
) -> u64 {
    let inside = |reference: &&Reference| rodata.contains(&reference.to);
    let mut cuts: BTreeSet<u64> = references.iter().filter(inside).map(|r| r.to).collect();
    cuts.insert(rodata.start);
    let cuts: Vec<u64> = cuts.into_iter().collect();
    let piece = |address: u64| cuts.partition_point(|cut| *cut <= address).saturating_sub(1);
    // From piece to piece.
    let mut inner = vec![Vec::new(); cuts.len()];
    for reference in references.iter().filter(inside) {
        if rodata.contains(&reference.at)
            && let Some(list) = inner.get_mut(piece(reference.at))
        {
            list.push(piece(reference.to));
        }
    }
    let reached = |of_ours: bool| {
        let outside = |r: &&Reference| !rodata.contains(&r.at) && ours(r.at) == of_ours;
        let roots = references.iter().filter(inside).filter(outside);
        let mut todo: Vec<usize> = roots.map(|r| piece(r.to)).collect();
        let mut seen = BTreeSet::new();
        while let Some(next) = todo.pop() {
            if seen.insert(next) {
                todo.extend(inner.get(next).into_iter().flatten());
            }
        }
        seen
    };
    let (by_us, by_others) = (reached(true), reached(false));
    let foreign = by_others.difference(&by_us);
    let ends = |piece: usize| cuts.get(piece + 1).copied().unwrap_or(rodata.end);
    let foreign: u64 =
        foreign.map(|&piece| ends(piece) - cuts.get(piece).copied().unwrap_or(rodata.end)).sum();
    rodata.end - rodata.start - foreign
}

#[cfg(test)]
mod tests {
    use super::{Reference, owned, references};

    #[test]
    fn references_are_read() {
        let said = "\n\
            Relocation section '.rela.text' at offset 0x30 contains 3 entries:\n    \
            Offset             Info             Type               Symbol's Value  Symbol's Name + Addend\n\
            0000000000100005  0000000500000002 R_X86_64_PC32          0000000000130000 .rodata + 1c\n\
            0000000000100015  000000050000000b R_X86_64_32S           0000000000130000 .rodata - 2\n\
            0000000000100025  0000000500000001 R_X86_64_64            0000000000100000 a name<of two words> + 10\n";
        let expected = [(0x100005, 0x130020), (0x100015, 0x12fffe), (0x100025, 0x100010)];
        let expected = expected.map(|(at, to)| Reference { at, to });
        assert_eq!(references(said).unwrap(), expected);
        assert!(references("1 2 R_X86_64_64 x y").is_err());
    }

    #[test]
    fn a_piece_is_foreign_only_if_none_of_ours_leads_to_it() {
        // Code below 50 is ours. Pieces: 100 unreferenced, 110 ours, 120 foreign, 130 by way of
        // 110, 140 of both.
        let references = [(10, 110), (60, 120), (112, 130), (60, 130), (20, 140), (70, 140)];
        let references = references.map(|(at, to)| Reference { at, to });
        assert_eq!(owned(100..150, &references, |at| at < 50), 40);
        assert_eq!(owned(100..150, &references, |_| false), 10);
        assert_eq!(owned(100..150, &references, |_| true), 50);
    }
}
