//! Interrupts as VFIO knows them: an index for each kind, lines within it, an eventfd for each
//! line.
//!
//! A line that fires without an eventfd stays pending and is delivered when it gets one: nothing is
//! lost between a client's disarm and re-arm, of which QEMU does many.

use super::sockets;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// INTx; never raised.
pub(super) const INTX: u32 = 0;
/// MSI-X.
pub(super) const MSIX: u32 = 2;
/// The device reports an error.
pub(super) const ERROR: u32 = 3;
/// Somebody wants the device back.
pub(super) const REQUEST: u32 = 4;
/// How many kinds there are; the one not named is MSI, which the device has not.
pub(super) const KINDS: u32 = 5;

/// SET_IRQS flags: what the data is, and what to do.
const NONE: u32 = 1;
const BOOL: u32 = 2;
const EVENTFD: u32 = 4;
const MASK: u32 = 8;
const UNMASK: u32 = 0x10;
const TRIGGER: u32 = 0x20;

#[derive(Debug, Default)]
struct Line {
    fd: Option<OwnedFd>,
    pending: bool,
}

impl Line {
    fn fire(&mut self) {
        match &self.fd {
            Some(fd) => sockets::signal(fd),
            None => self.pending = true,
        }
    }

    fn set(&mut self, fd: Option<OwnedFd>) {
        self.fd = fd;
        if self.fd.is_some() && core::mem::take(&mut self.pending) {
            self.fire();
        }
    }
}

/// All lines of a function.
#[derive(Debug)]
pub(super) struct Irqs([Vec<Line>; KINDS as usize]);

impl Irqs {
    /// So many MSI-X vectors.
    pub(super) fn new(vectors: u16) -> Self {
        let lines = |n: u16| (0..n).map(|_| Line::default()).collect();
        Self([lines(1), lines(0), lines(vectors), lines(1), lines(1)])
    }

    /// Lines and flags of a kind, for the client.
    pub(super) fn info(&self, index: u32) -> Result<(u32, u32), Errno> {
        const EVENTFDS: u32 = 1;
        const MASKABLE_AUTOMASKED: u32 = 6;
        let lines = self.0.get(index as usize).ok_or(Errno::INVAL)?;
        // MSI-X can grow without rebuilding: the NORESIZE flag stays clear.
        let flags = match index {
            INTX => EVENTFDS | MASKABLE_AUTOMASKED,
            _ => EVENTFDS,
        };
        Ok((flags, lines.len() as u32))
    }

    /// Fires a line; one that does not exist does nothing.
    pub(super) fn fire(&mut self, index: u32, line: u16) {
        let kind = self.0.get_mut(index as usize);
        if let Some(line) = kind.and_then(|lines| lines.get_mut(usize::from(line))) {
            line.fire();
        }
    }

    /// The client sets, clears or triggers lines.
    pub(super) fn set(
        &mut self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        data: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        let lines = self.0.get_mut(index as usize).ok_or(Errno::INVAL)?;
        let end = start.checked_add(count).ok_or(Errno::INVAL)?;
        let range = lines.get_mut(start as usize..end as usize).ok_or(Errno::INVAL)?;
        match (flags & !(NONE | BOOL | EVENTFD), flags & (NONE | BOOL | EVENTFD)) {
            (TRIGGER, NONE) if count == 0 => lines.iter_mut().for_each(|line| line.set(None)),
            (TRIGGER, NONE) => range.iter_mut().for_each(Line::fire),
            (TRIGGER, BOOL) => {
                let chosen = data.get(..count as usize).ok_or(Errno::INVAL)?;
                for (line, _) in range.iter_mut().zip(chosen).filter(|(_, on)| **on != 0) {
                    line.fire();
                }
            }
            (TRIGGER, EVENTFD) if fds.is_empty() => {
                range.iter_mut().for_each(|line| line.set(None));
            }
            (TRIGGER, EVENTFD) if fds.len() == range.len() => {
                if !fds.iter().all(sockets::is_eventfd) {
                    return Err(Errno::INVAL);
                }
                for (line, fd) in range.iter_mut().zip(fds) {
                    line.set(Some(fd));
                }
            }
            // INTx is never raised, so there is nothing to mask.
            (MASK | UNMASK, _) if index == INTX => {}
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// One byte of the MSI-X pending bits.
    pub(super) fn pending_byte(&self, at: usize) -> u8 {
        let vectors = self.0.get(MSIX as usize).map_or(&[][..], Vec::as_slice);
        let byte = vectors.iter().skip(at.saturating_mul(8)).take(8);
        byte.rev().fold(0, |acc, line| acc << 1 | u8::from(line.pending))
    }

    /// A reset of the function: no vector is pending. Eventfds stay, they are the host's.
    pub(super) fn reset(&mut self) {
        for line in self.0.get_mut(MSIX as usize).into_iter().flatten() {
            line.pending = false;
        }
    }

    /// The client is gone.
    pub(super) fn clear(&mut self) {
        for line in self.0.iter_mut().flatten() {
            *line = Line::default();
        }
    }
}
