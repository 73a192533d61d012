//! What became of received frames, counted by cause.

use core::fmt;

/// Counts, which wrap around. The causes of [`Counters::malformed`] stand in the fields after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that parsed and concerned neighbour discovery here.
    pub accepted: u32,
    /// Frames of other protocols, VLANs or destinations.
    pub ignored: u32,
    /// Frames that broke a rule of their protocol.
    pub malformed: u32,
    /// Of those: from a hop limit other than 255, so perhaps from beyond a router.
    pub hop_limit: u32,
    /// Of those: with a wrong checksum.
    pub checksum: u32,
    /// Of those: with a source, or a sender, that may not send this.
    pub source: u32,
    /// Of those: about an address that can be no host's.
    pub target: u32,
    /// Of those: with options that are not well-formed, doubled, or missing.
    pub options: u32,
    /// Answers and announcements nobody here had asked for.
    pub unsolicited: u32,
    /// Claims of another MAC for a neighbour in use: not believed, the known MAC is asked.
    pub contradicted: u32,
    /// Claims of other stations to one of our addresses.
    pub conflicts: u32,
    /// Questions for our addresses that were answered.
    pub answered: u32,
    /// Questions for our addresses that were not, because too many came at once.
    pub dropped: u32,
    /// Questions sent, those to known MACs included.
    pub asked: u32,
    /// Addresses nobody answered for.
    pub failed: u32,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "accepted {}, ignored {}, malformed {} (hop limit {}, checksum {}, source {}, target {}, \
             options {}), unsolicited {}, contradicted {}, conflicts {}, answered {}, dropped {}, \
             asked {}, failed {}",
            self.accepted,
            self.ignored,
            self.malformed,
            self.hop_limit,
            self.checksum,
            self.source,
            self.target,
            self.options,
            self.unsolicited,
            self.contradicted,
            self.conflicts,
            self.answered,
            self.dropped,
            self.asked,
            self.failed,
        )
    }
}

impl Counters {
    /// Counts what became of a frame.
    pub(super) const fn note(&mut self, verdict: Verdict) {
        let counter = match verdict {
            Verdict::Accepted => &mut self.accepted,
            Verdict::Ignored => &mut self.ignored,
            Verdict::Malformed => &mut self.malformed,
            Verdict::Broken(rule) => {
                count(&mut self.malformed);
                match rule {
                    Rule::HopLimit => &mut self.hop_limit,
                    Rule::Checksum => &mut self.checksum,
                    Rule::Source => &mut self.source,
                    Rule::Target => &mut self.target,
                    Rule::Options => &mut self.options,
                }
            }
            Verdict::Unsolicited => &mut self.unsolicited,
            Verdict::Conflict => &mut self.conflicts,
        };
        count(counter);
    }
}

/// Counts one.
pub(super) const fn count(counter: &mut u32) {
    *counter = counter.wrapping_add(1);
}

/// A rule that a message broke, where that is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    HopLimit,
    Checksum,
    Source,
    Target,
    Options,
}

/// Result of processing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accepted,
    Ignored,
    Malformed,
    Broken(Rule),
    Unsolicited,
    Conflict,
}
