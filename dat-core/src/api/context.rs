//! dat_set_consumer_context(3), dat_get_consumer_context(3), dat_get_handle_type(3): what holds for
//! objects of every kind.

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::{AnyHandle, HandleType};

impl<P: Provider> Ia<'_, P> {
    /// The context of an object, if it exists; the kind of the object either way.
    fn word(&mut self, handle: AnyHandle) -> (HandleType, Result<&mut u64, DatReturn>) {
        use DatSubtype as Of;
        use HandleType as Type;
        let (ty, word, of) = match handle {
            AnyHandle::Ia => {
                let open = (!self.lifecycle.closed).then_some(&mut self.lifecycle.context);
                (Type::Ia, open, Of::InvalidHandleIa)
            }
            AnyHandle::Cno(cno) => {
                (Type::Cno, self.events.cnos.context(cno.0), Of::InvalidHandleCno)
            }
            AnyHandle::Cr(cr) => (Type::Cr, self.objects.crs.context(cr.0), Of::InvalidHandleCr),
            AnyHandle::Ep(ep) => (Type::Ep, self.objects.eps.context(ep.0), Of::InvalidHandleEp),
            AnyHandle::Evd(evd) => (Type::Evd, self.events.evds.context(evd.0), Of::InvalidHandle1),
            AnyHandle::Lmr(lmr) => {
                (Type::Lmr, self.objects.lmrs.context(lmr.0), Of::InvalidHandleLmr)
            }
            AnyHandle::Psp(psp) => {
                (Type::Psp, self.objects.psps.context(psp.0), Of::InvalidHandlePsp)
            }
            AnyHandle::Pz(pz) => (Type::Pz, self.objects.pzs.context(pz.0), Of::InvalidHandlePz),
            AnyHandle::Rmr(rmr) => {
                (Type::Rmr, self.objects.rmrs.context(rmr.0), Of::InvalidHandleRmr)
            }
            AnyHandle::Rsp(rsp) => {
                (Type::Rsp, self.objects.rsps.context(rsp.0), Of::InvalidHandleRsp)
            }
            AnyHandle::Srq(srq) => {
                (Type::Srq, self.objects.srqs.context(srq.0), Of::InvalidHandleSrq)
            }
            AnyHandle::Csp(csp) => {
                (Type::Csp, self.objects.csps.context(csp.0), Of::InvalidHandleCsp)
            }
        };
        (ty, word.ok_or(DatReturn::new(DatType::InvalidHandle, of)))
    }

    /// Keeps a word of the consumer's with an object, until another one is set or the object is
    /// freed. `INVALID_HANDLE` of what is freed.
    #[doc(alias = "dat_set_consumer_context")]
    pub fn set_consumer_context(
        &mut self,
        handle: AnyHandle,
        context: u64,
    ) -> Result<(), DatReturn> {
        *self.word(handle).1? = context;
        Ok(())
    }

    /// The word that was set last, or 0 if none was. `INVALID_HANDLE` of what is freed.
    #[doc(alias = "dat_get_consumer_context")]
    pub fn get_consumer_context(&mut self, handle: AnyHandle) -> Result<u64, DatReturn> {
        self.word(handle).1.copied()
    }

    /// What kind of object a handle names. `INVALID_HANDLE` of what is freed.
    #[doc(alias = "dat_get_handle_type")]
    pub fn get_handle_type(&mut self, handle: AnyHandle) -> Result<HandleType, DatReturn> {
        let (ty, word) = self.word(handle);
        word.map(|_| ty)
    }
}
