//! The objects of one side.

use dat_core::{Ep, Evd, EvdFlags, Ia, LmrParam, MemPriv, Psp, PspFlag, Pz};
use hca_mlx5::dma::Buffer;

use super::{QUALIFIER, Setup};
use crate::host::inproc::Slot;
use crate::pair::Driver;

/// One side's objects.
#[derive(Debug)]
pub struct Side<'s> {
    /// Protection Zone.
    pub pz: Pz,
    /// Where receives complete.
    pub recv: Evd,
    /// Where requests and binds complete.
    pub request: Evd,
    /// Where connection events go.
    pub conn: Evd,
    /// Where connection requests go.
    pub cr: Evd,
    /// The service point.
    pub psp: Option<Psp>,
    /// The first Endpoint.
    pub ep: Ep,
    /// Memory.
    pub mem: Buffer<'s, Slot>,
    /// Its registration with every right.
    pub lmr: LmrParam,
}

impl<'s> Side<'s> {
    pub(super) fn make(ia: &mut Ia<'s, Driver<'s>>, slot: &'s Slot, setup: &Setup) -> Self {
        let pz = ia.pz_create().unwrap();
        let completions = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let [recv, request, conn] = if setup.merged {
            [ia.evd_create(512, completions | EvdFlags::CONNECTION).unwrap(); 3]
        } else {
            [completions, completions, EvdFlags::CONNECTION].map(|flags| {
                ia.evd_create(if flags == completions { 512 } else { 64 }, flags).unwrap()
            })
        };
        let cr = ia.evd_create(16, EvdFlags::CR).unwrap();
        let psp = ia.psp_create(QUALIFIER, cr, PspFlag::Consumer).unwrap();
        let mut attr = ia.ep_attr_default();
        (setup.tweak)(&mut attr);
        let ep =
            ia.ep_create(Some(pz), Some(recv), Some(request), Some(conn), Some(&attr)).unwrap();
        let mem = Buffer::zeroed(slot, setup.bytes).unwrap();
        let lmr = ia.lmr_create(pz, mem.region(), MemPriv::ALL).unwrap();
        Self { pz, recv, request, conn, cr, psp: Some(psp), ep, mem, lmr }
    }
}
