//! Memory windows: keys that open nothing until a bind on a send queue says what.
//!
//! PRM "CREATE_MKEY" with KLM translation, "UMR". A window is a free key whose translation has room
//! for one span of another key, and which UMRs may change. A window of type 1 any queue pair of its
//! protection domain may bind, and its key opens the same span for all of them; one of type 2 a
//! bind makes the queue pair's that carries it, and only that one's. Local read is given here and
//! never touched again; the remote rights come with each bind.
//!
//! Destroying a bound window is one command, without an unbind before: the key's index ceases to
//! exist.

use dat_core::provider::Fault;

use super::mkey::submit;
use crate::device::Device;
use crate::platform::Platform;
use crate::prm::At;
use crate::prm::mkey::{self, Mkey, MkeyContext};
use crate::prm::wqe;

/// Makes a window in protection domain `pd`, bound to nothing; one of type 2 may be closed by a
/// peer, with a message.
pub fn create<P: Platform>(
    device: &mut Device<'_, P>,
    pd: u32,
    type_2: bool,
) -> Result<Mkey, Fault> {
    let mut input = [0; mkey::TRANSLATION_AT];
    let mut context = MkeyContext(At::<_, { mkey::CONTEXT_AT }>(&mut input));
    context.set_free(true);
    context.set_umr_en(true);
    context.set_lr(true);
    context.set_en_rinval(type_2);
    context.set_access_mode_1_0(mkey::MODE_KLM);
    context.set_qpn(wqe::ANY_QPN);
    context.set_pd(pd);
    context.set_translations_octword_size(wqe::BIND_OCTOWORDS.into());
    submit(device, &mut input, &())
}
