//! Whole entries that the device wrote: completions, and the network headers before datagrams.

use hca_mlx5::platform::Span;
use vfio_host::{Host, Nic};

/// Bytes of a completion.
pub(super) const ENTRY: usize = hca_mlx5::prm::cqe::CQE;
/// Bytes behind a ring, which are no entry.
const BEHIND: usize = 64;
/// Bytes of a network header.
const HEADER: usize = dat_core::GRH_LEN;
/// What stands in the areas for headers before one comes.
pub(super) const UNTOUCHED: u8 = 0x5a;

/// Pieces of memory as they were.
pub(super) struct Before(Vec<(usize, Vec<u8>)>);

fn look<H: Host>(host: &H, spans: &[Span], piece: usize) -> Vec<(usize, Vec<u8>)> {
    let mut found = Vec::new();
    for span in spans {
        for offset in (span.offset..span.offset + span.len).step_by(piece) {
            let mut bytes = vec![0; piece];
            host.memory().read_bytes(offset, &mut bytes);
            found.push((offset, bytes));
        }
    }
    found
}

fn rings<H: Host>(nic: &Nic<'_, '_, H>, own: bool) -> Vec<Span> {
    let skip = usize::from(!own);
    let spans = nic.provider().completion_rings().skip(skip);
    let take = if own { 1 } else { usize::MAX };
    let cut = |span: Span| Span { offset: span.offset, len: span.len.saturating_sub(BEHIND) };
    spans.take(take).map(cut).collect()
}

/// Notes all completions. Those of QP1 with `own`, of Endpoints without.
pub(super) fn completions<H: Host>(nic: &Nic<'_, '_, H>, own: bool) -> Before {
    Before(look(nic.host(), &rings(nic, own), ENTRY))
}

/// Returns the completions that are new.
pub(super) fn new_completions<H: Host>(
    nic: &Nic<'_, '_, H>,
    own: bool,
    before: &Before,
) -> Vec<Vec<u8>> {
    let now = look(nic.host(), &rings(nic, own), ENTRY);
    let known = |at: usize| before.0.iter().find(|(offset, _)| *offset == at).map(|(_, b)| b);
    now.into_iter()
        // A ring made since then has entries that are marked as empty.
        .filter(|(at, bytes)| match known(*at) {
            Some(before) => before != bytes,
            None => bytes.last().is_some_and(|owner| owner >> 4 != 15),
        })
        .map(|(_, bytes)| bytes)
        .collect()
}

/// Fills the areas for network headers.
pub(super) fn prepare_headers<H: Host>(nic: &Nic<'_, '_, H>) {
    for span in nic.provider().datagram_headers() {
        nic.host().memory().write_bytes(span.offset, &[UNTOUCHED; HEADER]);
    }
}

/// Returns the network headers that have come since.
pub(super) fn new_headers<H: Host>(nic: &Nic<'_, '_, H>) -> Vec<Vec<u8>> {
    let spans: Vec<Span> = nic.provider().datagram_headers().collect();
    let all = look(nic.host(), &spans, HEADER).into_iter().map(|(_, bytes)| bytes);
    all.filter(|bytes| bytes.iter().any(|byte| *byte != UNTOUCHED)).collect()
}
