//! Allowed results of a call: success if nothing is wrong with it, else any of the reasons that
//! apply.
//!
//! The manual pages do not say which of two faults is reported, so the model does not either.

use dat_core::{DatReturn, DatSubtype, DatType};

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    must: Vec<(DatType, Option<DatSubtype>)>,
    may: Vec<(DatType, Option<DatSubtype>)>,
}

impl Verdict {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Refused if `wrong`, with that type and any subtype.
    pub(crate) fn no(mut self, wrong: bool, ty: DatType) -> Self {
        if wrong {
            self.must.push((ty, None));
        }
        self
    }

    /// Refused if `wrong`, with that type and subtype.
    pub(crate) fn no_as(mut self, wrong: bool, ty: DatType, subtype: DatSubtype) -> Self {
        if wrong {
            self.must.push((ty, Some(subtype)));
        }
        self
    }

    /// Perhaps refused with that type.
    pub(crate) fn may(mut self, possible: bool, ty: DatType) -> Self {
        if possible {
            self.may.push((ty, None));
        }
        self
    }

    /// Compares with what was answered; `Ok(true)` if the call was carried out.
    pub(crate) fn judge<T>(&self, answer: Result<&T, &DatReturn>) -> Result<bool, String> {
        match answer {
            Ok(_) if self.must.is_empty() => Ok(true),
            Ok(_) => Err(format!("carried out, though {:?}", self.must)),
            Err(ret) => {
                let known = self.must.iter().chain(&self.may).any(|(ty, subtype)| {
                    *ty == ret.ty() && subtype.is_none_or(|subtype| subtype == ret.subtype())
                });
                if known {
                    Ok(false)
                } else {
                    Err(format!("refused with {ret:?}, expected {:?} or {:?}", self.must, self.may))
                }
            }
        }
    }
}
