//! The first serial port of a PC, for the image's output.
//!
//! A 16550 at 0x3f8, 115,200 baud, eight bits, polled. Without such a port the output is dropped.

use core::fmt;

use super::ports;

const PORT: u16 = 0x3f8;
/// Polls of the line status before a byte is dropped.
const PATIENCE: u32 = 100_000;

/// The port, as a `fmt::Write`.
#[derive(Debug)]
pub(crate) struct Console;

impl Console {
    /// Sets speed and format.
    pub(crate) fn start() {
        // No interrupts; divisor 1 while the latch is open; eight bits, no parity; FIFO on and
        // clear; DTR, RTS.
        for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
            ports::write8(PORT + register, value);
        }
    }
}

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                send(b'\r');
            }
            send(byte);
        }
        Ok(())
    }
}

fn send(byte: u8) {
    for _ in 0..PATIENCE {
        if ports::read8(PORT + 5) & 0x20 != 0 {
            break;
        }
    }
    ports::write8(PORT, byte);
}
