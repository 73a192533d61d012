//! Deliberate faults that only the other side of the socket can make.

use std::str::FromStr;

/// A fault that begins by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rude {
    /// After so many commands the device falls off the bus: reads give all ones, stores are lost.
    GoneAfter(u64),
    /// After so many commands the firmware falls.
    DieAfter(u64),
    /// After so many commands nothing is answered.
    MuteAfter(u64),
    /// After so many commands the server ends, as if killed.
    QuitAfter(u64),
    /// More mappings than this are refused.
    DmaLimit(u64),
}

impl FromStr for Rude {
    type Err = String;

    /// `gone-after=N`, `die-after=N`, `mute-after=N`, `quit-after=N`, `dma-limit=N`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, number) =
            text.split_once('=').ok_or("expected KIND=N, such as gone-after=100")?;
        let n = number.parse().map_err(|_| format!("{number}: no number"))?;
        match kind {
            "gone-after" => Ok(Self::GoneAfter(n)),
            "die-after" => Ok(Self::DieAfter(n)),
            "mute-after" => Ok(Self::MuteAfter(n)),
            "quit-after" => Ok(Self::QuitAfter(n)),
            "dma-limit" => Ok(Self::DmaLimit(n)),
            _ => Err(format!(
                "{kind}: not one of gone-after, die-after, mute-after, quit-after, dma-limit"
            )),
        }
    }
}
