//! Several things that a provider is asked for at the same time, with up to [`FLIGHTS`] commands on
//! their way. Each has a result of its own; one that fails changes nothing of the others.

use dat_core::provider::{Fault, Task};
use heapless::Vec;

use crate::data::inline::{Fields, Object};
use crate::device::in_flight::few;
use crate::device::{Begun, FLIGHTS};
use crate::platform::Platform;
use crate::prm::cmd::Opcode;
use crate::provider::keys::{KeyEntry, Mapping};
use crate::provider::pairs::Making;
use crate::provider::{Mlx5, QpEntry};

/// What a task waits for.
enum Flight<'p, P: Platform> {
    /// Nothing: it is over.
    Over,
    Pair(Making<'p, P>),
    Step(Option<Begun>),
    PairEnd(QpEntry, Option<Begun>),
    Region(Mapping),
    RegionEnd(KeyEntry, Option<Begun>),
}

impl<
    'p,
    P: Platform,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Mlx5<'p, P, QPS, CQS, KEYS, NEIGHBOURS>
{
    pub(super) fn do_tasks(&mut self, all: &mut [Task<Self>]) {
        for some in all.chunks_mut(FLIGHTS) {
            self.do_some(some);
        }
    }

    fn do_some(&mut self, some: &mut [Task<Self>]) {
        // Reaping ends copy by none of those that go: they are waited for once.
        let out = few(some.iter().map(|task| self.take_out_of(task)));
        let copied = self.copies_over(out.iter().any(Option::is_some));
        let (mut pairs, mut regions) = (0, 0);
        let mut flights = Vec::<_, FLIGHTS>::new();
        for (task, out) in some.iter_mut().zip(&out) {
            let waited = if out.is_some() { copied } else { Ok(()) };
            let flight = match task {
                Task::QpCreate(init, made) => self.begin_pair(init, pairs).map_or_else(
                    |fault| over(made, Err(fault)),
                    |making| {
                        pairs += 1;
                        Flight::Pair(making)
                    },
                ),
                Task::QpModify(qp, step, done) => match self.begin_step(*qp, step) {
                    Ok(begun) => Flight::Step(begun),
                    Err(fault) => failed(done, fault),
                },
                Task::QpDestroy(qp, _, done) => {
                    match waited.and_then(|()| self.begin_pair_end(*qp)) {
                        Ok((entry, begun)) => Flight::PairEnd(entry, begun),
                        Err(fault) => failed(done, fault),
                    }
                }
                Task::MrCreate(init, made) => self.begin_region(init, regions).map_or_else(
                    |fault| over(made, Err(fault)),
                    |mapping| {
                        regions += 1;
                        Flight::Region(mapping)
                    },
                ),
                Task::MrDestroy(mr, done) => {
                    let entry = waited.and_then(|()| self.known_region(*mr));
                    let begun = entry.and_then(|entry| {
                        let index = entry.key.index();
                        Ok((entry, self.device.begin_end(Opcode::DestroyMkey, index)?))
                    });
                    match begun {
                        Ok((entry, begun)) => Flight::RegionEnd(entry, begun),
                        Err(fault) => failed(done, fault),
                    }
                }
            };
            let _ = flights.push(flight);
        }
        let mut long = Vec::<_, FLIGHTS>::new();
        for (index, ((task, out), flight)) in
            some.iter_mut().zip(&out).zip(&mut flights).enumerate()
        {
            match (&mut *task, core::mem::replace(flight, Flight::Over)) {
                (Task::QpCreate(init, made), Flight::Pair(making)) => {
                    *made = Some(self.finish_pair(init, making));
                }
                (Task::QpModify(qp, step, done), Flight::Step(begun)) => {
                    *done = self.finish_step(*qp, step, begun);
                }
                (Task::QpDestroy(_, _, done), Flight::PairEnd(entry, begun)) => {
                    *done = self.finish_pair_end(&entry, begun);
                }
                (Task::MrDestroy(mr, done), Flight::RegionEnd(entry, begun)) => {
                    *done = self.finish_region_end(&entry, *mr, begun);
                }
                (Task::MrCreate(init, made), Flight::Region(mapping)) => {
                    if mapping.list.is_some() {
                        *made = Some(self.finish_region(init, mapping));
                    } else {
                        // It takes as much room as there is, and several commands.
                        let _ = long.push((index, mapping));
                    }
                    continue;
                }
                _ => {}
            }
            if let (
                Task::QpDestroy(.., Err(_)) | Task::MrDestroy(_, Err(_)),
                Some((object, fields)),
            ) = (task, out)
            {
                self.put_back(*object, *fields);
            }
        }
        while let Some((index, mapping)) = long.pop() {
            if let Some(Task::MrCreate(init, made)) = some.get_mut(index) {
                *made = Some(self.finish_region(init, mapping));
            }
        }
    }

    /// Takes the object of a task that destroys it out of its directory.
    fn take_out_of(&self, task: &Task<Self>) -> Option<(Object, Fields)> {
        let object = match task {
            Task::QpDestroy(qp, ..) => Object::Queue(qp.number),
            Task::MrDestroy(mr, _) => Object::Key(self.known_region(*mr).ok()?.key.0),
            Task::QpCreate(..) | Task::QpModify(..) | Task::MrCreate(..) => return None,
        };
        Some((object, self.take_out(object)?))
    }
}

fn over<'p, P: Platform, T>(
    made: &mut Option<Result<T, Fault>>,
    result: Result<T, Fault>,
) -> Flight<'p, P> {
    *made = Some(result);
    Flight::Over
}

fn failed<'p, P: Platform>(done: &mut Result<(), Fault>, fault: Fault) -> Flight<'p, P> {
    *done = Err(fault);
    Flight::Over
}
