//! The wire: whole Ethernet frames without FCS, in and out.

/// One end of a link.
pub trait Wire {
    /// Puts one frame on the wire. Never blocks; a full or cut wire loses it.
    fn send(&mut self, frame: &[u8]);
    /// The next frame that arrived.
    fn recv(&mut self) -> Option<Vec<u8>>;
}
