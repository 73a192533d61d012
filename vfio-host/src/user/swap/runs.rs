//! Bookkeeping of exchanged pages: which run, of which file, and what is still to be exchanged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::mm::ProtFlags;

use crate::host::Reach;
use crate::vmas::Vma;

/// Consecutive pages that have been exchanged.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) end: u64,
    /// Number of lent ranges that hold them.
    pub(super) count: usize,
    pub(super) file: Arc<OwnedFd>,
    /// Their offset in the file.
    pub(super) offset: u64,
    /// They were private before the exchange; otherwise they belonged to the file already.
    pub(super) exchanged: bool,
}

/// Splits the run that extends across `at`.
pub(super) fn cut(runs: &mut BTreeMap<u64, Run>, at: u64) {
    let Some((start, run)) = runs.range_mut(..at).next_back() else {
        return;
    };
    if run.end > at {
        let behind = Run { offset: run.offset + (at - start), ..run.clone() };
        run.end = at;
        runs.insert(at, behind);
    }
}

/// Returns the parts of `pages` that are in no run. No run may extend across their ends.
pub(super) fn gaps(runs: &BTreeMap<u64, Run>, pages: &Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut at = pages.start;
    for (start, run) in runs.range(pages.clone()) {
        gaps.push(at..*start);
        at = run.end;
    }
    gaps.push(at..pages.end);
    gaps.retain(|gap| !gap.is_empty());
    gaps
}

/// Pages of one mapping, private or of a shared file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range<u64>,
    /// The shared file and the offset in it, if they are of one.
    pub(super) file: Option<(Arc<OwnedFd>, u64)>,
    pub(super) rights: ProtFlags,
    /// They begin a mapping that has to keep growing downwards.
    pub(super) grows: bool,
}

/// Splits the gaps by the mappings that contain them. An error names a page that cannot be lent.
pub(super) fn parts(gaps: &[Range<u64>], vmas: &[Vma], reach: Reach) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for gap in gaps {
        let mut at = gap.start;
        for vma in vmas.iter().filter(|vma| vma.range.end > gap.start) {
            if vma.range.start > at || at >= gap.end {
                break;
            }
            let end = gap.end.min(vma.range.end);
            if let Some(why) = vma.refusal(reach) {
                let Vma { range, name, .. } = vma;
                let (from, to) = (range.start, range.end);
                return Err(format!("{why}: {from:#x}-{to:#x} {name}"));
            }
            let file = if vma.shared {
                let Some(file) = vma.file() else {
                    return Err(format!(
                        "what is shared at {at:#x} is of no file that can be opened: {}",
                        vma.name
                    ));
                };
                Some((Arc::new(file.into()), vma.offset + (at - vma.range.start)))
            } else {
                None
            };
            parts.push(Part {
                range: at..end,
                file,
                rights: vma.rights,
                grows: vma.grows() && vma.range.start == at,
            });
            at = end;
        }
        if at < gap.end {
            return Err(format!("the process has no memory at {at:#x}"));
        }
    }
    Ok(parts)
}

/// Returns the ranges of the first `done` bytes of the parts.
pub(super) fn done_of(parts: &[Part], done: u64) -> Vec<Range<u64>> {
    let mut left = done;
    let cut = |part: &Part| {
        let len = left.min(part.range.end - part.range.start);
        left -= len;
        part.range.start..part.range.start + len
    };
    let mut done: Vec<_> = parts.iter().map(cut).collect();
    done.retain(|range| !range.is_empty());
    done
}
