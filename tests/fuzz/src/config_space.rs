//! PCI configuration space: any bytes into the host's reader, and any accesses to that of the model
//! and to its registers.

use std::sync::{Arc, Mutex};

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::host::{DmaError, HostMemory};
use mlx5_model::wire::switch;
use mlx5_model::{Config, Hca};
use vfio_host::pci::ConfigSpace;

use crate::input::steps;

#[derive(Debug, Arbitrary)]
enum Step {
    ConfigRead {
        offset: u16,
        len: u8,
    },
    ConfigWrite {
        offset: u16,
        bytes: [u8; 4],
        len: u8,
    },
    BarRead {
        offset: u32,
        len: u8,
    },
    BarWrite {
        offset: u32,
        bytes: [u8; 8],
        len: u8,
    },
    /// A register that does something.
    Known {
        which: u8,
        value: u32,
    },
    Memory {
        at: u16,
        bytes: [u8; 16],
    },
    Pass {
        micros: u16,
    },
    Reset,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if first & 1 == 0 {
        read(rest.to_vec());
    } else {
        registers(rest);
    }
}

fn read(bytes: Vec<u8>) {
    let config = ConfigSpace::new(bytes);
    let _ = (config.id(), config.subsystem(), config.revision(), config.class());
    let _ = (config.bus_master(), config.msix(), config.express());
}

/// A page or two of memory, from address 0 on.
#[derive(Clone)]
struct Small(Arc<Mutex<Vec<u8>>>);

impl Small {
    fn with<T>(
        &self,
        iova: u64,
        len: usize,
        what: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, DmaError> {
        let mut bytes = self.0.lock().unwrap();
        let start = usize::try_from(iova).map_err(|_| DmaError::Refused(iova))?;
        let end = start.checked_add(len).ok_or(DmaError::Refused(iova))?;
        bytes.get_mut(start..end).map(what).ok_or(DmaError::Refused(iova))
    }
}

impl HostMemory for Small {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        self.with(iova, buf.len(), |bytes| buf.copy_from_slice(bytes))
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.with(iova, buf.len(), |bytes| bytes.copy_from_slice(buf))
    }
}

/// Offsets of registers: command queue, doorbell, MSI-X, vendor capability's neighbours, pages of
/// doorbells.
const KNOWN: [u64; 10] = [0x10, 0x14, 0x18, 0x1fc, 0x200, 0x1000, 0x2000, 0x2800, 0x2a00, 0x2b00];

fn registers(data: &[u8]) {
    let memory = Small(Arc::new(Mutex::new(vec![0; 0x4000])));
    let (wire, _peer) = switch::cable();
    let mut hca = Hca::new(Config::default(), Box::new(memory.clone()), Box::new(wire));
    dat_tests::host::inproc::enable(&mut hca);
    let mut now = 0;
    for step in steps(&mut Unstructured::new(data), 100) {
        match step {
            Step::ConfigRead { offset, len } => {
                hca.config_read(offset.into(), &mut vec![0; len.into()]);
            }
            Step::ConfigWrite { offset, bytes, len } => {
                hca.config_write(offset.into(), &bytes[..usize::from(len) % 5]);
            }
            Step::BarRead { offset, len } => hca.bar_read(offset.into(), &mut vec![0; len.into()]),
            Step::BarWrite { offset, bytes, len } => {
                hca.bar_write(offset.into(), &bytes[..usize::from(len) % 9]);
            }
            Step::Known { which, value } => {
                let offset = KNOWN[usize::from(which) % KNOWN.len()];
                hca.bar_write(offset, &value.to_be_bytes());
            }
            Step::Memory { at, bytes } => {
                let _ = memory.clone().write(u64::from(at & 0x3fff), &bytes);
            }
            Step::Pass { micros } => {
                now += u64::from(micros) * 1000;
                let _ = hca.step(now);
                let _ = hca.interrupts();
            }
            Step::Reset => hca.flr(),
        }
    }
}
