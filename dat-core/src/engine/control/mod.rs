//! Several calls that make and free Endpoints and LMRs, carried out together: not of DAT.
//!
//! Each is checked and gets its slot, then the commands of all are on their way to the device at the
//! same time, in two rounds: a queue pair is created or reset, a key made or destroyed; then the
//! queue pair takes its first step, or is destroyed. A call for one object is the same with one.

pub(crate) mod ep;
pub(crate) mod lmr;

use heapless::Vec;

use self::ep::{EpCreate, ep_begin, ep_enter, ep_leave, ep_over, ep_undo, may_free};
use self::lmr::{
    FULL, LmrCreate, lmr_finish, lmr_over, lmr_reserve_from, lmr_vacate, may_free_lmr,
};
use crate::engine::Ia;
use crate::engine::queue_pair::{Wanted, first_step, made, qp_init, take_qp, unsure};
use crate::provider::{Mr, MrInit, NewQp, Provider, QpInit, QpStep, Service, Task};
use crate::types::bounds::STEPS;
use crate::types::dat_return::Error;
use crate::types::few::few;
use crate::types::handle::{Ep, Lmr, Srq};
use crate::types::time::Instant;

/// One of several calls.
#[derive(Clone, Copy, Debug)]
pub enum Control<'a> {
    /// [`Ia::ep_create`].
    EpCreate(EpCreate),
    /// [`Ia::ep_free`].
    EpFree(Ep),
    /// [`Ia::lmr_create_from`].
    LmrCreate(LmrCreate<'a>),
    /// [`Ia::lmr_free`].
    LmrFree(Lmr),
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub enum Controlled {
    /// An Endpoint.
    Ep(Ep),
    /// An LMR.
    Lmr(Lmr),
    /// The object is freed.
    Freed,
}

/// What came of one of several calls; none before it was made.
pub(crate) type Came = Option<Result<Controlled, Error>>;

/// One of several calls, also of those that the consumer does not make so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job<'a> {
    EpCreate(EpCreate, Option<Srq>, Service),
    EpFree(Ep),
    /// In whatever state.
    EpRemove(Ep),
    LmrCreate(LmrCreate<'a>),
    LmrFree(Lmr),
    /// Of any kind.
    LmrRemove(Lmr),
}

/// A queue pair, and what it was made of.
type Created<P> = (QpInit, NewQp<<P as Provider>::Sq, <P as Provider>::Rq>);

/// A call that was admitted.
enum Begun {
    /// It was not, or is over.
    Over,
    Ep(Ep, Wanted),
    /// Whether its queue pair has to be reset.
    EpEnd(Ep, bool),
    Lmr(Lmr, MrInit),
    /// With what is put back if it stays.
    LmrEnd(Lmr, Mr, u64),
}

impl<P: Provider> Ia<'_, P> {
    /// Makes several calls, with the commands of up to eight on their way to the device at the same
    /// time. What came of each stands behind it; one that fails changes nothing, and nothing of the
    /// others.
    pub fn control_each(
        &mut self,
        now: Instant,
        mut all: &mut [(Control<'_>, Option<Result<Controlled, Error>>)],
    ) {
        while !all.is_empty() {
            let some = next_batch(&mut all);
            let mut jobs = few::<_, STEPS>(some.iter().map(|(c, _)| (Job::from(*c), None)));
            control_jobs(self, now, &mut jobs);
            for ((_, came), (_, came_here)) in some.iter_mut().zip(&jobs) {
                *came = *came_here;
            }
        }
    }
}

/// Makes one call.
pub(crate) fn control_one<P: Provider>(
    ia: &mut Ia<'_, P>,
    now: Instant,
    job: Job<'_>,
) -> Result<Controlled, Error> {
    let mut one = [(job, None)];
    control_jobs(ia, now, &mut one);
    let [(_, came)] = one;
    came.unwrap_or(Err(FULL.into()))
}

/// Frees up to [`STEPS`] Endpoints in whatever state. Returns the first failure.
pub(crate) fn eps_remove<P: Provider>(
    ia: &mut Ia<'_, P>,
    now: Instant,
    eps: &[Ep],
) -> Result<(), Error> {
    let mut jobs = few::<_, STEPS>(eps.iter().map(|ep| (Job::EpRemove(*ep), None)));
    control_jobs(ia, now, &mut jobs);
    first_failure(&jobs)
}

/// Ends up to [`STEPS`] registrations of any kind. Returns the first failure.
pub(crate) fn lmrs_remove<P: Provider>(ia: &mut Ia<'_, P>, lmrs: &[Lmr]) -> Result<(), Error> {
    let mut jobs = few::<_, STEPS>(lmrs.iter().map(|lmr| (Job::LmrRemove(*lmr), None)));
    control_jobs(ia, ia.lifecycle.clock, &mut jobs);
    first_failure(&jobs)
}

/// Makes up to [`STEPS`] calls that do not free an object twice.
pub(crate) fn control_jobs<P: Provider>(
    ia: &mut Ia<'_, P>,
    now: Instant,
    all: &mut [(Job<'_>, Came)],
) {
    let mut begun = Vec::<_, STEPS>::new();
    for (job, came) in &mut *all {
        let one = control_begin(ia, now, job).unwrap_or_else(|error| {
            *came = Some(Err(error));
            Begun::Over
        });
        let _ = begun.push(one);
    }
    fail_unsure(ia, &begun);
    let (mut tasks, mut places) = (Vec::<_, STEPS>::new(), Vec::<_, STEPS>::new());
    for (place, one) in begun.iter().enumerate() {
        if let Some(task) = first_task(ia, one) {
            let _ = tasks.push(task);
            let _ = places.push(place);
        }
    }
    ia.hca.do_each(&mut tasks);
    let (mut created, mut created_at) = (Vec::<_, STEPS>::new(), Vec::<_, STEPS>::new());
    for (&place, task) in places.iter().zip(&mut tasks) {
        let (Some((_, came)), Some(one)) = (all.get_mut(place), begun.get_mut(place)) else {
            continue;
        };
        *came = match (&*one, task) {
            (Begun::Ep(ep, _), Task::QpCreate(init, made)) => match made.take() {
                Some(Ok(new)) => {
                    let _ = created.push(Some((*init, new)));
                    let _ = created_at.push(place);
                    continue;
                }
                Some(Err(fault)) => {
                    ep_undo(ia, *ep);
                    Some(Err(fault.into()))
                }
                None => continue,
            },
            (Begun::Lmr(lmr, _), Task::MrCreate(_, Some(made))) => {
                Some(lmr_finish(ia, *lmr, *made).map(|()| Controlled::Lmr(*lmr)))
            }
            (Begun::LmrEnd(lmr, _, identity), Task::MrDestroy(_, destroyed)) => {
                Some(lmr_over(ia, *lmr, *identity, *destroyed).map(|()| Controlled::Freed))
            }
            _ => continue,
        };
        *one = Begun::Over;
    }
    second_round(ia, all, &begun, created, &created_at);
    for ((_, came), one) in all.iter_mut().zip(&begun) {
        match one {
            // It needs no queue pair yet.
            Begun::Ep(ep, Wanted { makings, .. }) if came.is_none() => {
                ep_begin(ia, *ep, makings, None);
                *came = Some(Ok(Controlled::Ep(*ep)));
            }
            Begun::EpEnd(ep, _) => {
                ep_over(ia, *ep);
                let _ = came.get_or_insert(Ok(Controlled::Freed));
            }
            Begun::Over | Begun::Ep(..) | Begun::Lmr(..) | Begun::LmrEnd(..) => {}
        }
    }
    let freed = |(job, _): &(Job<'_>, Came)| matches!(job, Job::EpFree(_));
    if all.iter().zip(&begun).any(|(one, b)| freed(one) && matches!(b, Begun::EpEnd(..))) {
        ia.transmit(now);
    }
}

/// Checks a call and does what comes before its commands.
fn control_begin<P: Provider>(
    ia: &mut Ia<'_, P>,
    now: Instant,
    job: &Job<'_>,
) -> Result<Begun, Error> {
    Ok(match *job {
        Job::EpCreate(ref create, srq, service) => {
            let (ep, wanted) = ep_enter(ia, create, srq, service)?;
            Begun::Ep(ep, wanted)
        }
        Job::EpFree(ep) => {
            may_free(ia, ep)?;
            Begun::EpEnd(ep, ep_leave(ia, now, ep))
        }
        Job::EpRemove(ep) => Begun::EpEnd(ep, ep_leave(ia, now, ep)),
        Job::LmrCreate(ref create) => {
            let (lmr, init) = lmr_reserve_from(ia, create)?;
            Begun::Lmr(lmr, init)
        }
        Job::LmrFree(lmr) => {
            may_free_lmr(ia, lmr)?;
            lmr_end(ia, lmr)?
        }
        Job::LmrRemove(lmr) => lmr_end(ia, lmr)?,
    })
}

fn lmr_end<P: Provider>(ia: &Ia<'_, P>, lmr: Lmr) -> Result<Begun, Error> {
    let (mr, identity) = lmr_vacate(ia, lmr)?;
    Ok(Begun::LmrEnd(lmr, mr, identity))
}

/// Takes queue pairs to Error that have to say what became of something; see
/// [`crate::engine::queue_pair::stop`].
fn fail_unsure<P: Provider>(ia: &mut Ia<'_, P>, begun: &[Begun]) {
    let mut steps = Vec::<_, STEPS>::new();
    for one in begun {
        if let Begun::EpEnd(ep, true) = one {
            if let Some(line) = ia.data.shared.ep(ep.0.index()) {
                if unsure(line) {
                    if let Some(qp) = ia.objects.eps.get(ep.0).and_then(|control| control.qp) {
                        let _ = steps.push((qp, QpStep::Error, Ok(())));
                    }
                }
            }
        }
    }
    if !steps.is_empty() {
        ia.hca.qp_modify_each(&mut steps);
    }
}

/// What the device is asked for first, if anything.
fn first_task<P: Provider>(ia: &Ia<'_, P>, one: &Begun) -> Option<Task<P>> {
    match one {
        Begun::Over | Begun::EpEnd(_, false) => None,
        Begun::Ep(_, wanted) => Some(Task::QpCreate(qp_init(ia, wanted)?, None)),
        Begun::EpEnd(ep, true) => {
            let qp = ia.objects.eps.get(ep.0)?.qp?;
            Some(Task::QpModify(qp, QpStep::Reset, Ok(())))
        }
        Begun::Lmr(_, init) => Some(Task::MrCreate(*init, None)),
        Begun::LmrEnd(_, mr, _) => Some(Task::MrDestroy(*mr, Ok(()))),
    }
}

/// New queue pairs take their first step, those of Endpoints that go are destroyed.
fn second_round<P: Provider>(
    ia: &mut Ia<'_, P>,
    all: &mut [(Job<'_>, Came)],
    begun: &[Begun],
    mut created: Vec<Option<Created<P>>, STEPS>,
    created_at: &[usize],
) {
    let mut tasks = Vec::<_, STEPS>::new();
    for (init, new) in created.iter().flatten() {
        let _ = tasks.push(Task::QpModify(new.qp, first_step(init.service), Ok(())));
    }
    let mut places = few::<_, STEPS>(created_at.iter().copied());
    for (place, one) in begun.iter().enumerate() {
        let Begun::EpEnd(ep, _) = one else { continue };
        // What has completed is taken out when the device has stopped.
        ia.drop_outstanding(ep.0.index());
        if let Some(NewQp { qp, sq, rq }) = take_qp(ia, *ep) {
            let _ = tasks.push(Task::QpDestroy(qp, Some((sq, rq)), Ok(())));
            let _ = places.push(place);
        }
    }
    ia.hca.do_each(&mut tasks);
    let mut created = created.iter_mut().filter_map(Option::take);
    for (&place, task) in places.iter().zip(&tasks) {
        let (Some((_, came)), Some(one)) = (all.get_mut(place), begun.get(place)) else {
            continue;
        };
        match (one, task) {
            (Begun::Ep(ep, wanted), Task::QpModify(.., stepped)) => {
                let Some((init, NewQp { qp, sq, rq })) = created.next() else { continue };
                *came = Some(match *stepped {
                    Ok(()) => {
                        let made = made(ia, wanted, &init, qp, sq, rq);
                        ep_begin(ia, *ep, &wanted.makings, Some(made));
                        Ok(Controlled::Ep(*ep))
                    }
                    Err(fault) => {
                        // The first failure is the one to tell.
                        let _ = ia.hca.qp_destroy(qp, sq, rq);
                        ep_undo(ia, *ep);
                        Err(fault.into())
                    }
                });
            }
            (_, Task::QpDestroy(.., Err(fault))) => *came = Some(Err((*fault).into())),
            _ => {}
        }
    }
}

/// The first failure among calls.
fn first_failure(jobs: &[(Job<'_>, Came)]) -> Result<(), Error> {
    jobs.iter().find_map(|(_, came)| (*came)?.err()).map_or(Ok(()), Err)
}

impl<'a> From<Control<'a>> for Job<'a> {
    fn from(control: Control<'a>) -> Self {
        match control {
            Control::EpCreate(create) => Self::EpCreate(create, None, Service::Connected),
            Control::EpFree(ep) => Self::EpFree(ep),
            Control::LmrCreate(create) => Self::LmrCreate(create),
            Control::LmrFree(lmr) => Self::LmrFree(lmr),
        }
    }
}

/// Takes the first calls of `rest`, no more than [`STEPS`], and none that frees an object which one
/// before it frees: that sees what became of it.
fn next_batch<'a, 'c, R>(rest: &mut &'a mut [(Control<'c>, R)]) -> &'a mut [(Control<'c>, R)] {
    let all = core::mem::take(rest);
    let same = |one: &Control<'_>, other: &Control<'_>| match (one, other) {
        (Control::EpFree(one), Control::EpFree(other)) => one == other,
        (Control::LmrFree(one), Control::LmrFree(other)) => one == other,
        _ => false,
    };
    let repeats = |at: &usize| {
        let before = all.get(..*at).unwrap_or_default();
        all.get(*at).is_none_or(|(one, _)| before.iter().any(|(other, _)| same(one, other)))
    };
    let most = all.len().min(STEPS);
    let count = (1..most).find(repeats).unwrap_or(most);
    let Some((some, others)) = all.split_at_mut_checked(count) else { return &mut [] };
    *rest = others;
    some
}
