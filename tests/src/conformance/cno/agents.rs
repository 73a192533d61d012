//! Agents of a CNO while somebody waits.

use std::task::Poll;

use dat_core::Proxy;

use super::super::evd::{MOMENT, begin, post};
use super::super::{Adapters, LIMIT, Side};
use super::{agent, calls, on, peek, plain, start};

/// A trigger goes to the agent and to one of the waiters, in whichever order they came; the agent
/// is called once.
pub fn an_agent_is_called_beside_waiters(ias: &mut Adapters<'_, impl Side>) {
    for agent_first in [true, false] {
        let cno = plain(ias);
        let evd = on(ias, cno);
        if agent_first {
            ias.a.cno_modify_agent(cno, agent(5)).unwrap();
        }
        let mut waits = [start(ias, cno, LIMIT), start(ias, cno, LIMIT)];
        if !agent_first {
            ias.a.cno_modify_agent(cno, agent(5)).unwrap();
        }
        for wait in &mut waits {
            assert_eq!(peek(ias, wait), Poll::Pending);
        }
        assert_eq!(ias.a.cno_query(cno).unwrap().waiters, 2);
        post(ias, evd, 0..1);
        ias.pass(MOMENT);
        assert_eq!(calls(), [(5, Some(evd))]);
        assert_eq!(peek(ias, &mut waits[1]), Poll::Ready(Ok(Some(evd))));
        assert_eq!(peek(ias, &mut waits[0]), Poll::Pending);
        // The agent was called once; the other waiter takes the next trigger.
        post(ias, evd, 1..2);
        ias.pass(MOMENT);
        assert!(calls().is_empty());
        assert_eq!(peek(ias, &mut waits[0]), Poll::Ready(Ok(Some(evd))));
        assert_eq!(ias.a.cno_query(cno).unwrap().waiters, 0);
        ias.a.evd_free(evd).unwrap();
        ias.a.cno_free(cno).unwrap();
    }
}

/// Events that arrive while somebody waits for their Event Dispatcher call no agent; those of
/// another one on the CNO do.
pub fn a_waiter_of_an_evd_preempts_the_agent(ias: &mut Adapters<'_, impl Side>) {
    let cno = ias.a.cno_create(agent(6)).unwrap();
    let [waited, other] = [on(ias, cno), on(ias, cno)];
    let mut under = begin(ias, waited, LIMIT, 2);
    post(ias, waited, 0..1);
    ias.pass(MOMENT);
    assert!(calls().is_empty());
    assert_eq!(ias.a.cno_query(cno).unwrap().proxy, Proxy::Agent);
    post(ias, other, 0..1);
    ias.pass(MOMENT);
    assert_eq!(calls(), [(6, Some(other))]);
    ias.a.evd_wait_end(&mut under);
}
