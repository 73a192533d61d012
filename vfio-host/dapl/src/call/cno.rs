//! dat_cno_*(3).

use std::ffi::c_int;
use std::sync::PoisonError;

use std::time::Duration;

use dat_core::{Cno, CnoWait, Evd};

use super::{call, ia_called};
use crate::abi::number::DAT_CNO_FIELD_ALL;
use crate::abi::structs::{DatCnoParam, DatOsWaitProxyAgent};
use crate::abi::{DatHandle, Out, Ret, Timeout, code};
use crate::adapter::Open;
use crate::object::{Note, Object};
use crate::sleep::{Descriptor, Limit, in_turns, wait};
use crate::variant::Variant;

/// The agent of a CNO, as C has it.
#[derive(Clone, Copy)]
pub(crate) struct Agent(DatOsWaitProxyAgent);

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agent({:p})", self.0.instance_data)
    }
}

/// A due call of an agent, with the Event Dispatcher to pass to it.
#[derive(Debug)]
pub(crate) struct Due {
    agent: Agent,
    evd: DatHandle,
}

impl Due {
    /// Calls the agent.
    pub(crate) fn call(self) {
        if let Some(function) = self.agent.0.proxy_agent_func {
            function(self.agent.0.instance_data, self.evd);
        }
    }
}

/// The upcall of `dat_core`: records that the agent of the CNO at that address is due. It runs with
/// the adapter locked, unlike the agent itself.
fn triggered<V: Variant>(object: u64, evd: Option<Evd>) {
    let Ok(address) = usize::try_from(object) else {
        return;
    };
    let handle = DatHandle(std::ptr::with_exposed_provenance_mut(address));
    let Some(object) = Object::<V>::find(handle) else {
        return;
    };
    let mut note = object.note();
    if let (Note::Agent(agent), Ok(adapter)) = (&*note, object.adapter()) {
        let agent = *agent;
        *note = Note::None;
        let evd = evd.map_or(DatHandle::NULL, |evd| adapter.handle_of(evd));
        let mut due = adapter.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.push(Due { agent, evd });
    }
}

impl<V: Variant> Open<V> {
    /// Sets the agent of a CNO, or removes it.
    fn set_agent(
        &mut self,
        object: &'static Object<V>,
        cno: Cno,
        agent: DatOsWaitProxyAgent,
    ) -> Result<(), dat_core::Error> {
        let agent_of_core = agent.proxy_agent_func.map(|_| dat_core::Agent::Function {
            instance: object.handle().0.expose_provenance() as u64,
            function: triggered::<V>,
        });
        *object.note() = match agent_of_core {
            Some(_) => Note::Agent(Agent(agent)),
            None => Note::None,
        };
        self.nic().cno_modify_agent(cno, agent_of_core)
    }
}

pub(super) extern "C" fn create<V: Variant>(
    ia: DatHandle,
    agent: DatOsWaitProxyAgent,
    cno: Out<DatHandle>,
) -> Ret {
    call("dat_cno_create", || {
        let ia = ia_called::<V>(ia)?;
        if cno.is_null() {
            return Err(code::bad_arg(3).into());
        }
        ia.adapter()?.with(|open| {
            let made = open.nic().cno_create(None)?;
            let handle = open.adopt(ia, made);
            open.set_agent(Object::called(handle), made, agent)?;
            cno.put(handle);
            Ok(())
        })
    })
}

pub(super) extern "C" fn modify_agent<V: Variant>(
    cno: DatHandle,
    agent: DatOsWaitProxyAgent,
) -> Ret {
    call("dat_cno_modify_agent", || {
        let object = Object::<V>::called(cno);
        object.adapter()?.drive(|open| {
            let cno = object.name()?;
            open.set_agent(object, cno, agent)
        })
    })
}

/// The valid bits of the mask. The mask of the proxy is 3, which is also the union of the other
/// two, so any mask except 0 requests all fields.
const CNO_MASKS: u64 = DAT_CNO_FIELD_ALL | 0x3;

pub(super) extern "C" fn query<V: Variant>(
    cno: DatHandle,
    mask: u32,
    param: Out<DatCnoParam>,
) -> Ret {
    call("dat_cno_query", || {
        let object = Object::<V>::called(cno);
        let name = object.name::<Cno>()?;
        if param.is_null() {
            return Err(code::bad_arg(3).into());
        }
        code::masked(mask.into(), CNO_MASKS)?;
        object.adapter()?.with(|open| {
            let state = open.nic().cno_query(name)?;
            let agent = if let Note::Agent(agent) = &*object.note() { Some(agent.0) } else { None };
            let mut descriptors = open.descriptors.iter();
            let fd = descriptors.find(|one| one.cno() == name);
            let fd = fd.map(Descriptor::number);
            let around = &mut open.around(object);
            let found = DatCnoParam::new(&state, agent, fd, around);
            if mask != 0 {
                param.put(found);
            }
            Ok(())
        })
    })
}

pub(super) extern "C" fn free<V: Variant>(cno: DatHandle) -> Ret {
    call("dat_cno_free", || {
        let object = Object::<V>::called(cno);
        object.adapter()?.with(|open| {
            let cno = object.name()?;
            open.nic().cno_free(cno)?;
            open.disown(object, cno);
            open.update_descriptors();
            Ok(())
        })
    })
}

pub(super) extern "C-unwind" fn wait_for<V: Variant>(
    cno: DatHandle,
    timeout: Timeout,
    evd: Out<DatHandle>,
) -> Ret {
    let mut attached = false;
    in_turns(timeout, &mut |limit| wait_a_turn::<V>(cno, limit, evd, &mut attached))
}

/// `attached`: an Event Dispatcher was attached to it in an earlier turn.
fn wait_a_turn<V: Variant>(
    cno: DatHandle,
    limit: &mut Limit,
    evd: Out<DatHandle>,
    attached: &mut bool,
) -> Ret {
    call("dat_cno_wait", || {
        let object = Object::<V>::called(cno);
        object.name::<Cno>()?;
        if evd.is_null() {
            return Err(code::bad_arg(3).into());
        }
        evd.put(DatHandle::NULL);
        let mut released = false;
        let begin = |open: &mut Open<V>, span| {
            let cno = object.name()?;
            open.drive();
            let now = open.nic().now();
            // The last one may have been detached between two turns.
            let any = open.nic().cno_query(cno)?.evds != 0;
            released = core::mem::replace(attached, any) && !any;
            open.ia().cno_wait(now, cno, if released { Duration::ZERO } else { span })
        };
        let waited = wait::<V, CnoWait, ()>(object, limit, begin, |open, found| {
            if let Some(found) = found? {
                evd.put(open.adapter.handle_of(found));
            }
            open.update_descriptors();
            Ok(())
        });
        if released { Ok(()) } else { waited }
    })
}

pub(super) extern "C" fn fd_create<V: Variant>(
    ia: DatHandle,
    fd: Out<c_int>,
    cno: Out<DatHandle>,
) -> Ret {
    call("dat_cno_fd_create", || {
        let ia = ia_called::<V>(ia)?;
        if fd.is_null() {
            return Err(code::bad_arg(2).into());
        }
        if cno.is_null() {
            return Err(code::bad_arg(3).into());
        }
        ia.adapter()?.with(|open| {
            let made = open.ia().cno_fd_create()?;
            let descriptor = match Descriptor::new(made) {
                Ok(descriptor) => descriptor,
                Err(error) => {
                    open.nic().cno_free(made)?;
                    return Err(error);
                }
            };
            fd.put(descriptor.number());
            open.descriptors.push(descriptor);
            cno.put(open.adopt(ia, made));
            Ok(())
        })
    })
}

pub(super) extern "C" fn trigger<V: Variant>(cno: DatHandle, evd: Out<DatHandle>) -> Ret {
    call("dat_cno_trigger", || {
        let object = Object::<V>::called(cno);
        if evd.is_null() {
            return Err(code::bad_arg(2).into());
        }
        object.adapter()?.drive(|open| {
            let cno = object.name()?;
            open.drive();
            let found = open.ia().cno_trigger(cno)?;
            evd.put(open.adapter.handle_of(found));
            Ok(())
        })
    })
}
