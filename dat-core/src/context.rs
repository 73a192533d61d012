//! dat_set_consumer_context(3), dat_get_consumer_context(3), dat_get_handle_type(3): what holds for
//! objects of every kind.

use crate::Ia;
use crate::dat_return::{DatReturn, DatSubtype, DatType};
use crate::handle::{Cno, Cr, Csp, Ep, Evd, Lmr, Psp, Pz, Rmr, Rsp, Srq};
use crate::provider::Provider;

/// `DAT_HANDLE_TYPE`, with the numbers of uDAPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum HandleType {
    /// A Connection Request.
    Cr = 0,
    /// An Endpoint.
    Ep = 1,
    /// An Event Dispatcher.
    Evd = 2,
    /// The Interface Adapter.
    Ia = 3,
    /// A Local Memory Region.
    Lmr = 4,
    /// A Public Service Point.
    Psp = 5,
    /// A Protection Zone.
    Pz = 6,
    /// A Remote Memory Region.
    Rmr = 7,
    /// A Reserved Service Point.
    Rsp = 8,
    /// A Consumer Notification Object.
    Cno = 9,
    /// A Shared Receive Queue.
    Srq = 10,
    /// A Common Service Point.
    Csp = 11,
}

/// A handle of any kind: what the calls take that serve objects of every kind. Each handle converts
/// into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyHandle {
    /// The Interface Adapter that is asked.
    Ia,
    /// A Consumer Notification Object.
    Cno(Cno),
    /// A Connection Request.
    Cr(Cr),
    /// An Endpoint.
    Ep(Ep),
    /// An Event Dispatcher.
    Evd(Evd),
    /// A Local Memory Region.
    Lmr(Lmr),
    /// A Public Service Point.
    Psp(Psp),
    /// A Protection Zone.
    Pz(Pz),
    /// A Remote Memory Region.
    Rmr(Rmr),
    /// A Reserved Service Point.
    Rsp(Rsp),
    /// A Shared Receive Queue.
    Srq(Srq),
    /// A Common Service Point.
    Csp(Csp),
}

macro_rules! any {
    ($($kind:ident),*) => {
        $(
            impl From<$kind> for AnyHandle {
                fn from(handle: $kind) -> Self {
                    Self::$kind(handle)
                }
            }
        )*
    };
}

any!(Cno, Cr, Csp, Ep, Evd, Lmr, Psp, Pz, Rmr, Rsp, Srq);

impl<P: Provider> Ia<'_, P> {
    /// The consumer's word about an object, if the object lives; the kind of the object either way.
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
