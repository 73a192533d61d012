//! PCI configuration space: a type 0 header, PCIe and MSI-X capabilities, of a physical function
//! the vendor's own, and in the extended part advanced error reporting, which never has an error to
//! report.

use super::bar::BAR_BYTES;
use super::msix::{PBA, TABLE};
use super::vsc::{self, Gateway};
use crate::config::{Config, LinkLayer, Personality};
use crate::facts::OpenFact;
use crate::hca::Hca;

/// Where the capabilities are.
const PCIE: usize = 0x60;
const MSIX: usize = 0x9c;
const VSC: usize = 0xc0;
const VSC_END: usize = VSC + vsc::BYTES as usize;
const AER: usize = 0x100;

/// The bytes, and which of them software may change.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
    /// State behind the vendor's capability.
    pub(super) gateway: Gateway,
    has_gateway: bool,
}

impl ConfigSpace {
    pub(crate) fn new(config: &Config) -> Self {
        let mut space = Self {
            bytes: vec![0; 4096],
            writable: vec![0; 4096],
            gateway: Gateway::default(),
            has_gateway: config.personality == Personality::Pf,
        };
        space.put16(0x00, 0x15b3, 0);
        space.put16(0x02, config.device_id, 0);
        // Memory space, bus master, INTx disable.
        space.put16(0x04, 0, 0x0406);
        // Capabilities list.
        space.put16(0x06, 0x0010, 0);
        // Class: a network controller, Ethernet or InfiniBand.
        let is_infiniband =
            config.link == LinkLayer::InfiniBand || config.facts.on(OpenFact::PortType);
        space.put32(0x08, if is_infiniband { 0x0207_0000 } else { 0x0200_0000 }, 0);
        space.put32(0x0c, 0, 0xff);
        // BAR0: memory, 64-bit, prefetchable.
        space.put32(0x10, 0x0000_000c, !(BAR_BYTES as u32 - 1));
        space.put32(0x14, 0, u32::MAX);
        space.put32(0x2c, 0x0003_15b3, 0);
        if let Some(pci) = config.recording.as_ref().and_then(|recording| recording.pci.as_ref()) {
            // Revision, and who built the board.
            space.bytes[0x08] = pci[0x08];
            space.bytes[0x2c..0x30].copy_from_slice(&pci[0x2c..0x30]);
        }
        space.put32(0x34, PCIE as u32, 0);
        space.put32(0x3c, 0x0000_0100, 0xff);
        // PCIe endpoint, version 2, with function level reset.
        space.put16(PCIE, (MSIX as u16) << 8 | 0x10, 0);
        space.put16(PCIE + 2, 0x0002, 0);
        space.put32(PCIE + 4, 0x1000_8fe2, 0);
        space.put16(PCIE + 8, 0x2810, 0xffff);
        // Link: 8 GT/s, 16 lanes.
        space.put32(PCIE + 12, 0x0000_0103, 0);
        space.put16(PCIE + 18, 0x1103, 0);
        space.put32(PCIE + 0x24, 0x0000_0012, 0);
        space.put16(PCIE + 0x28, 0, 0x001f);
        // Speeds the link can run at: 2.5, 5 and 8 GT/s; without this vector 8 is unknown.
        space.put32(PCIE + 0x2c, 0x0000_000e, 0);
        space.put16(PCIE + 0x30, 0x0003, 0x000f);
        let next = if space.has_gateway { VSC as u16 } else { 0 };
        space.put16(MSIX, next << 8 | 0x11, 0);
        space.put16(MSIX + 2, config.vectors.saturating_sub(1) & 0x7ff, 0xc000);
        space.put32(MSIX + 4, TABLE as u32, 0);
        space.put32(MSIX + 8, PBA as u32, 0);
        if space.has_gateway {
            space.put32(VSC, u32::from(vsc::BYTES) << 16 | 0x09, 0);
        }
        // Advanced error reporting, version 1, the last of its list: masks and severities as at
        // power-on by the PCIe specification.
        space.put32(AER, 0x0001_0001, 0);
        space.put32(AER + 8, 0, 0x003f_f030);
        space.put32(AER + 12, 0x0006_2030, 0x003f_f030);
        space.put32(AER + 0x14, 0x0000_2000, 0x0000_f1c1);
        space
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Memory space enable.
    pub(crate) fn memory_enabled(&self) -> bool {
        self.word(4) & 2 != 0
    }
}

impl Hca {
    /// Which word of the vendor's capability lies at an offset.
    fn gateway_word(&self, offset: usize) -> Option<usize> {
        let inside = self.pci.has_gateway && (VSC + 4..VSC_END).contains(&offset);
        (inside && offset % 4 == 0).then(|| offset - VSC)
    }

    /// Reads configuration space; ones beyond its end, as from nobody.
    pub fn config_read(&mut self, offset: usize, buf: &mut [u8]) {
        for (at, byte) in (offset..).zip(buf.iter_mut()) {
            *byte = self.pci.bytes.get(at).copied().unwrap_or(0xff);
        }
        // The gateway's words take part in whole ones. Of its control word a piece will do, which
        // iPXE (mlx_pci_gw.c) reads and writes; a piece of another is a look without effect.
        if let (Some(at), Ok(word)) =
            (self.gateway_word(offset), <&mut [u8; 4]>::try_from(&mut *buf))
        {
            *word = self.gateway_read(at).to_le_bytes();
        } else if let Some(skipped) = self.gateway_control(offset, buf.len()) {
            let word = self.gateway_read(vsc::CONTROL).to_le_bytes();
            buf.copy_from_slice(&word[skipped..skipped + buf.len()]);
        }
    }

    /// How many bytes of the gateway's control word come before a piece of it.
    fn gateway_control(&self, offset: usize, len: usize) -> Option<usize> {
        let begin = VSC + vsc::CONTROL;
        let inside = offset >= begin && offset + len <= begin + 4;
        (self.pci.has_gateway && inside).then(|| offset - begin)
    }

    /// Writes configuration space; read-only bits stay. Setting Initiate Function Level Reset
    /// resets the function.
    pub fn config_write(&mut self, offset: usize, bytes: &[u8]) {
        if let (Some(at), Ok(word)) = (self.gateway_word(offset), bytes.try_into()) {
            self.gateway_write(at, u32::from_le_bytes(word));
            return;
        }
        if let (Some(0), Ok(space)) = (self.gateway_control(offset, bytes.len()), bytes.try_into())
        {
            self.gateway_write(vsc::CONTROL, u32::from(u16::from_le_bytes(space)));
            return;
        }
        for (at, byte) in (offset..4096).zip(bytes) {
            let mask = self.pci.writable[at];
            self.pci.bytes[at] = self.pci.bytes[at] & !mask | byte & mask;
        }
        if self.pci.word(PCIE + 8) & 0x8000 != 0 {
            self.flr();
        }
        self.bus.master = self.pci.word(4) & 4 != 0;
        self.bus.relaxed.enabled = self.pci.word(PCIE + 8) & 0x10 != 0;
        let control = self.pci.word(MSIX + 2);
        self.bus.set_msix(control & 0x8000 != 0, control & 0x4000 != 0);
    }
}
