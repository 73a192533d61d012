//! Agents of a CNO while somebody waits.

use std::task::Poll;

use dat_core::Proxy;

use super::super::evd::{MOMENT, begin, post};
use super::super::{Bed, LIMIT, Side};
use super::{agent, calls, on, peek, plain, start};

/// A trigger goes to the agent and to one of the waiters, in whichever order they came; the agent
/// is called once.
pub fn an_agent_is_called_beside_waiters(bed: &mut Bed<'_, impl Side>) {
    for agent_first in [true, false] {
        let cno = plain(bed);
        let evd = on(bed, cno);
        if agent_first {
            bed.a.cno_modify_agent(cno, agent(5)).unwrap();
        }
        let mut waits = [start(bed, cno, LIMIT), start(bed, cno, LIMIT)];
        if !agent_first {
            bed.a.cno_modify_agent(cno, agent(5)).unwrap();
        }
        for wait in &mut waits {
            assert_eq!(peek(bed, wait), Poll::Pending);
        }
        assert_eq!(bed.a.cno_query(cno).unwrap().waiters, 2);
        post(bed, evd, 0..1);
        bed.pass(MOMENT);
        assert_eq!(calls(), [(5, Some(evd))]);
        assert_eq!(peek(bed, &mut waits[1]), Poll::Ready(Ok(Some(evd))));
        assert_eq!(peek(bed, &mut waits[0]), Poll::Pending);
        // The agent was called once; the other waiter takes the next trigger.
        post(bed, evd, 1..2);
        bed.pass(MOMENT);
        assert!(calls().is_empty());
        assert_eq!(peek(bed, &mut waits[0]), Poll::Ready(Ok(Some(evd))));
        assert_eq!(bed.a.cno_query(cno).unwrap().waiters, 0);
        bed.a.evd_free(evd).unwrap();
        bed.a.cno_free(cno).unwrap();
    }
}

/// Events that arrive while somebody waits for their Event Dispatcher call no agent; those of
/// another one on the CNO do.
pub fn a_waiter_of_an_evd_preempts_the_agent(bed: &mut Bed<'_, impl Side>) {
    let cno = bed.a.cno_create(agent(6)).unwrap();
    let [waited, other] = [on(bed, cno), on(bed, cno)];
    let mut under = begin(bed, waited, LIMIT, 2);
    post(bed, waited, 0..1);
    bed.pass(MOMENT);
    assert!(calls().is_empty());
    assert_eq!(bed.a.cno_query(cno).unwrap().proxy, Proxy::Agent);
    post(bed, other, 0..1);
    bed.pass(MOMENT);
    assert_eq!(calls(), [(6, Some(other))]);
    bed.a.evd_wait_end(&mut under);
}
