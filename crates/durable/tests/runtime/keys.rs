//! Tests keys, ids and labels of timers.

use super::{DAY, Note, PATIENCE, World, block_on, secs};
use std::sync::Mutex;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Filter, IfPresent};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Placed, Rejection, Spec, Verdict};

#[test]
fn after_cancelled_no_delivery_begins() {
    let world = World::done();
    world.schedule(Spec::new(Note(1)).after(secs(10)).key("a"));
    let cancelled = world.timers().cancel_blocking("a").unwrap();
    assert!(matches!(cancelled, Cancelled::Cancelled(timer) if timer.payload.0[..] == *b"1"));
    assert_eq!(world.timers().cancel_blocking("a").unwrap(), Cancelled::NotFound);
    world.advance(DAY);
    assert_eq!(world.seen(), [0_u64; 0]);
}

#[test]
fn keys_have_four_modes() {
    let world = World::done();
    let spec = |number, delay| Spec::new(Note(number)).after(secs(delay)).key("a");
    let first = world.schedule(spec(1, 10));
    let refused = world.timers().schedule_blocking(spec(2, 20)).unwrap_err();
    assert!(matches!(refused.reason, Rejection::KeyExists(holder) if holder == first));
    assert_eq!(refused.payload, Note(2), "handed back");
    let place = |spec| world.timers().schedule_blocking(spec).unwrap();
    assert_eq!(
        place(spec(3, 30).if_present(IfPresent::Keep)),
        Placed::Kept { id: first, was: Phase::Pending }
    );
    let replaced = place(spec(4, 40).if_present(IfPresent::Replace));
    let Placed::Replaced { new, old, was: Phase::Pending } = replaced else { panic!("{replaced:?}") };
    assert_eq!(old, first);
    let Placed::Replaced { old, .. } = place(spec(5, 5).if_present(IfPresent::ReplaceKeepDue)) else {
        panic!()
    };
    assert_eq!(old, new);
    world.advance(secs(40));
    assert_eq!(world.seen(), [0_u64; 0]);
    world.advance(secs(1));
    assert_eq!(world.seen(), [5]);
    let last = world.schedule(spec(6, 1));
    let only =
        |number, id| world.timers().schedule_blocking(spec(number, 1).if_present(IfPresent::ReplaceOnly(id)));
    assert!(matches!(only(7, first).unwrap_err().reason, Rejection::KeyExists(holder) if holder == last));
    assert!(matches!(only(8, last), Ok(Placed::Replaced { old, .. }) if old == last));
    world.timers().cancel_blocking("a").unwrap();
    let refused = only(9, last).unwrap_err();
    assert!(matches!(refused.reason, Rejection::NotFound), "{refused}");
    assert_eq!(refused.payload, Note(9), "handed back");
    assert!(world.timers().await_idle(std::time::Duration::MAX), "any patience is valid");
}

#[test]
fn a_timer_that_is_kept_says_whether_its_delivery_has_begun() {
    let (sender, begun) = std::sync::mpsc::channel();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let world = World::new(move |number, _| {
        if number == 1 {
            sender.send(()).unwrap();
            let _dropped = finished.lock().unwrap().recv_timeout(PATIENCE);
        }
        Verdict::Done
    });
    let spec = |number| Spec::new(Note(number)).key("refresh");
    let first = world.schedule(spec(1));
    world.clock.advance(secs(1));
    begun.recv_timeout(PATIENCE).unwrap();
    let place = |spec| world.timers().schedule_blocking(spec).unwrap();
    let kept = place(spec(2).if_present(IfPresent::Keep));
    assert_eq!(kept, Placed::Kept { id: first, was: Phase::Leased });
    let again = place(spec(3).if_present(IfPresent::Replace));
    assert!(matches!(again, Placed::Replaced { old, was: Phase::Leased, .. } if old == first), "{again:?}");
    finish.send(()).unwrap();
    world.settle();
    world.advance(secs(1));
    assert_eq!(world.seen(), [1, 3], "the wish that was made during the delivery is delivered after it");
}

#[test]
fn a_repeated_creation_makes_one_timer() {
    let world = World::done();
    let id = TimerId::from_u128(42);
    let place = || world.timers().schedule_blocking(Spec::new(Note(1)).after(secs(5)).id(id)).unwrap();
    assert_eq!(place(), Placed::Created(id));
    assert_eq!(place(), Placed::Repeated(id));
    world.advance(secs(6));
    assert_eq!(place(), Placed::Repeated(id), "also after its end");
    world.advance(secs(3_700));
    assert_eq!(world.seen(), [1]);
    assert_eq!(place(), Placed::Created(id), "an hour later it is forgotten");
}

#[test]
fn timers_are_cancelled_by_label_in_batches() {
    let world = World::done();
    for number in 0..1_200 {
        let label = if number % 3 == 0 { "fizz" } else { "other" };
        world.schedule(Spec::new(Note(number)).after(secs(100)).label(label).label("all"));
    }
    let mut steps = Vec::new();
    let cancelled = block_on(world.timers().cancel_labelled("", "other", |progress| {
        steps.push(progress.cancelled);
        true
    }));
    assert_eq!(cancelled.unwrap().cancelled, 800);
    assert_eq!(steps, [500, 800]);
    let filter = Filter { label: Some("all".into()), ..Filter::default() };
    assert_eq!(block_on(world.timers().list(filter, None, 1_000)).unwrap().timers.len(), 400);
    world.advance(secs(101));
    assert_eq!(world.seen().len(), 400);
}
