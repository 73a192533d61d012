//! dat_cno_*(3).

use std::ffi::c_int;
use std::sync::PoisonError;

use dat_core::{Cno, CnoWait, Evd};

use super::{call, ia_called};
use crate::abi::number::DAT_CNO_FIELD_ALL;
use crate::abi::structs::{DatCnoParam, DatOsWaitProxyAgent};
use crate::abi::{DatHandle, Out, Ret, Timeout, code};
use crate::adapter::Open;
use crate::object::{Note, Object};
use crate::sleep::{Descriptor, duration, wait};
use crate::variant::Variant;

/// The agent of a CNO, as C has it.
#[derive(Clone, Copy)]
pub(crate) struct Agent(DatOsWaitProxyAgent);

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agent({:p})", self.0.instance_data)
    }
}

/// An agent that is to be called, and of which Event Dispatcher it is to be told.
#[derive(Debug)]
pub(crate) struct Due {
    agent: Agent,
    evd: DatHandle,
}

impl Due {
    /// Calls it.
    pub(crate) fn call(self) {
        if let Some(function) = self.agent.0.proxy_agent_func {
            function(self.agent.0.instance_data, self.evd);
        }
    }
}

/// What `dat_core` calls: it notes that the agent of the CNO at that address is due. It runs with
/// the control half, which an agent must not.
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
    /// Gives a CNO that agent, or none.
    fn set_agent(
        &mut self,
        object: &'static Object<V>,
        cno: Cno,
        agent: DatOsWaitProxyAgent,
    ) -> Result<(), dat_core::Error> {
        let told = agent.proxy_agent_func.map(|_| dat_core::Agent::Function {
            instance: object.handle().0.expose_provenance() as u64,
            function: triggered::<V>,
        });
        *object.note() = match told {
            Some(_) => Note::Agent(Agent(agent)),
            None => Note::None,
        };
        self.nic().cno_modify_agent(cno, told)
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

/// What the masks of the header have in common. That of the proxy is 3, which is also the union of
/// the other two, so any mask but 0 asks for all fields.
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
            let told = open.nic().cno_query(name)?;
            let agent = if let Note::Agent(agent) = &*object.note() { Some(agent.0) } else { None };
            let mut descriptors = open.descriptors.iter();
            let fd = descriptors.find(|one| one.cno() == name);
            let fd = fd.map(Descriptor::number);
            let around = &mut open.around(object);
            let found = DatCnoParam::new(&told, agent, fd, around);
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
            open.tell_descriptors();
            Ok(())
        })
    })
}

pub(super) extern "C" fn wait_for<V: Variant>(
    cno: DatHandle,
    timeout: Timeout,
    evd: Out<DatHandle>,
) -> Ret {
    call("dat_cno_wait", || {
        let object = Object::<V>::called(cno);
        object.name::<Cno>()?;
        if evd.is_null() {
            return Err(code::bad_arg(3).into());
        }
        evd.put(DatHandle::NULL);
        let begin = |open: &mut Open<V>| {
            let cno = object.name()?;
            open.drive();
            let now = open.nic().now();
            open.ia().cno_wait(now, cno, duration(timeout))
        };
        wait::<V, CnoWait, ()>(object, begin, |open, found| {
            if let Some(found) = found? {
                evd.put(open.adapter.handle_of(found));
            }
            open.tell_descriptors();
            Ok(())
        })
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
