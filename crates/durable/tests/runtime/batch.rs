//! Tests batches of changes: each change gets an answer, in the order of the changes.

use super::{DAY, Note, START, World, block_on, secs};
use std::time::Duration;
use tourbillon_durable::store::{Durability, Filter, StoreErrorKind};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{
    Cancelled, Change, Changed, Effect, Kind, Placed, Rejection, Spec, Timers, UtcMillis, Verdict,
};

fn note(number: u64) -> Spec<Vec<u8>> {
    Spec::new(number.to_string().into_bytes()).after(DAY)
}

fn place(spec: Spec<Vec<u8>>) -> Change {
    Change::schedule(Note::NAME, spec)
}

fn batch(world: &World, changes: Vec<Change>) -> Vec<Result<Effect, Rejection>> {
    world.timers().batch_blocking(changes, Durability::PowerLoss).unwrap()
}

fn stored(world: &World) -> usize {
    block_on(world.timers().list(Filter::default(), None, 2_000)).unwrap().timers.len()
}

#[test]
fn each_change_has_its_answer_and_none_hinders_another() {
    let world = World::new(|number, _| if number == 9 { Verdict::Dead("no".into()) } else { Verdict::Done });
    let dead = world.schedule(Spec::new(Note(9)));
    world.advance(secs(1));
    world.schedule(Spec::new(Note(1)).key("moved").after(secs(100)));
    world.schedule(Spec::new(Note(2)).key("paused").after(secs(100)));
    world.schedule(Spec::new(Note(3)).key("fired").after(secs(100)));
    world.schedule(Spec::new(Note(4)).key("cancelled").after(secs(100)));
    let id = TimerId::from_u128(7);
    let answers = batch(
        &world,
        vec![
            place(note(5).id(id)),
            place(note(6).key("k".repeat(256))),
            place(Spec::new(vec![0; 70_000])),
            Change::schedule("other", note(6)),
            place(note(6).key("moved")),
            place(note(6).after(Duration::MAX)),
            place(note(5).id(id)),
            Change::Move("moved".into(), UtcMillis::from_millis(START + 5_000)),
            Change::Move("nobody".into(), UtcMillis::ZERO),
            Change::Pause("paused".into()),
            Change::Pause("paused".into()),
            Change::Fire("fired".into()),
            Change::Replay(dead),
            Change::Cancel("cancelled".into()),
            Change::Cancel("cancelled".into()),
            place(note(6).label("a\0b")),
            Change::Cancel("a\0b".into()),
            Change::Move("a\0b".into(), UtcMillis::ZERO),
        ],
    );
    let changed = |answer: &Result<Effect, Rejection>, wanted| matches!(answer, Ok(Effect::Changed(effect)) if *effect == wanted);
    assert_eq!(answers.len(), 18);
    assert!(matches!(answers[0], Ok(Effect::Placed(Placed::Created(created))) if created == id));
    assert!(matches!(answers[1], Err(Rejection::TooLong("the key"))));
    assert!(matches!(answers[2], Err(Rejection::PayloadTooLong(70_000))));
    assert!(matches!(&answers[3], Err(Rejection::UnknownKind(kind)) if **kind == *"other"));
    assert!(matches!(answers[4], Err(Rejection::KeyExists(_))));
    assert!(matches!(answers[5], Err(Rejection::DueTooFar)));
    assert!(matches!(answers[6], Ok(Effect::Placed(Placed::Repeated(stored))) if stored == id));
    assert!(changed(&answers[7], Changed::Changed));
    assert!(changed(&answers[8], Changed::NotFound));
    assert!(changed(&answers[9], Changed::Changed));
    assert!(changed(&answers[10], Changed::Changed));
    assert!(changed(&answers[11], Changed::Changed));
    assert!(changed(&answers[12], Changed::Changed));
    assert!(
        matches!(&answers[13], Ok(Effect::Cancelled(Cancelled::Cancelled(timer))) if timer.payload.0[..] == *b"4")
    );
    assert!(matches!(answers[14], Ok(Effect::Cancelled(Cancelled::NotFound))));
    assert!(matches!(answers[15], Err(Rejection::ZeroByte("a label"))));
    for answer in &answers[16..] {
        assert!(matches!(answer, Err(Rejection::Store(error)) if error.kind() == StoreErrorKind::Limit));
    }
    world.settle();
    let seen = world.numbers();
    assert_eq!(seen, [3, 9, 9], "fired and replayed");
    world.advance(secs(5));
    assert_eq!(world.seen().last(), Some(&1), "moved");
    assert_eq!(batch(&world, vec![Change::Resume("paused".into())]).len(), 1);
    world.advance(DAY);
    let seen = world.numbers();
    assert_eq!(seen, [1, 2, 3, 5, 9, 9]);
}

#[test]
fn a_change_sees_those_before_it() {
    let world = World::done();
    let answers =
        batch(&world, vec![place(note(1).key("a")), Change::Cancel("a".into()), place(note(2).key("a"))]);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(
        matches!(&answers[1], Ok(Effect::Cancelled(Cancelled::Cancelled(timer))) if timer.payload.0[..] == *b"1")
    );
    world.advance(2 * DAY);
    assert_eq!(world.seen(), [2]);
}

#[test]
fn a_batch_has_at_most_a_thousand_changes() {
    let world = World::done();
    let changes = |count| (0..count).map(|number| place(note(number))).collect::<Vec<_>>();
    let error = world.timers().batch_blocking(changes(1_001), Durability::PowerLoss).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Limit);
    assert_eq!(
        error.to_string(),
        "the store refuses this: a batch has 1001 changes, the most are 1000",
        "the error names both numbers"
    );
    assert_eq!(stored(&world), 0);
    assert_eq!(Timers::MOST_CHANGES, 1_000);
    assert!(batch(&world, changes(1_000)).iter().all(Result::is_ok));
    assert_eq!(stored(&world), 1_000);
    assert!(batch(&world, Vec::new()).is_empty());
}

#[test]
fn a_stopped_runtime_places_nothing_and_cancels() {
    let mut world = World::done();
    world.schedule(Spec::new(Note(1)).key("a").after(DAY));
    let timers = world.timers().clone();
    world.stop();
    let changes = vec![place(note(2)), Change::Cancel("a".into())];
    let answers = timers.batch_blocking(changes, Durability::PowerLoss).unwrap();
    assert!(matches!(answers[0], Err(Rejection::ShutDown)));
    assert!(matches!(answers[1], Ok(Effect::Cancelled(Cancelled::Cancelled(_)))));
    world.start(|builder| builder);
    assert_eq!(stored(&world), 0);
}
