//! Numbers of buses, on machines without firmware.

use super::{Config, DEPTH, behind, functions};

/// Numbers the buses behind the bridges of `bus`, up to `last`, as firmware does. Their windows are
/// closed until [`Function::place`] opens one.
pub(crate) fn number<C: Config>(config: &C, bus: u8, last: u8) {
    number_below(config, bus, last, DEPTH);
}

/// Numbers what is behind at most `depth` bridges, and returns the highest number.
fn number_below<C: Config>(config: &C, bus: u8, last: u8, depth: usize) -> u8 {
    let mut highest = bus;
    for at in functions(config, bus) {
        if behind(config, at).is_none() || depth == 0 || highest >= last {
            continue;
        }
        let secondary = highest + 1;
        let buses = |last| u32::from_le_bytes([bus, secondary, last, 0]);
        // Until all behind it is numbered, the bridge passes on what is for any higher bus.
        config.write(at, 0x18, buses(last));
        // A base above its limit closes a window: memory, prefetchable memory. That of I/O stays
        // as it is, since nothing decodes I/O.
        config.write(at, 0x20, 0x0000_fff0);
        config.write(at, 0x24, 0x0000_fff0);
        highest = number_below(config, secondary, last, depth - 1);
        config.write(at, 0x18, buses(highest));
    }
    highest
}
