//! Sorts the records of a history by the timers that they concern.

use super::{Answer, Call, Delivery, Fault, Id, Moment, Place, Record};
use std::collections::{BTreeMap, HashMap};

/// The effect of a call that cancels or replaces a timer, as the history shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawn {
    /// The call removed the timer from the store before any delivery.
    Surely,
    /// The call removed the timer, but a delivery may have begun before. No further delivery may follow.
    InFlight,
    /// The store answered that it did not have the timer.
    Absent,
    /// The call's answer was lost, so the store may still have the timer.
    Perhaps,
}

/// The moment at which a client made a call, and the moment at which the answer came. The call took effect between
/// these two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) asked: Moment,
    pub(super) at: Moment,
}

/// A call that moved a timer's due moment, or may have moved it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) call: Answered,
    /// The new due moment, in milliseconds of UTC.
    due: u64,
    /// Whether the call's answer says that the timer was moved.
    is_sure: bool,
}

/// The records of a history that concern one timer.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) place: Option<Place>,
    /// When a client first asked the store to keep the timer.
    pub(super) asked: Moment,
    /// The calls that created the timer. Their answers were [`Answer::Created`] or [`Answer::Replaced`].
    pub(super) created: Vec<Answered>,
    /// The first call whose answer confirms that the timer is stored. `None` if no answer confirms it.
    pub(super) acknowledged: Option<Answered>,
    /// Whether a call to store the timer got no answer, so that the timer may exist although nothing confirms it.
    pub(super) has_doubt: bool,
    /// The calls that cancelled or replaced the timer, or tried to do so.
    pub(super) withdrawn: Vec<(Answered, Withdrawn)>,
    /// The calls that moved the timer's due moment, in the order of their answers.
    pub(super) moved: Vec<Moved>,
    /// The deliveries of the timer, sorted by their start.
    pub(super) deliveries: Vec<Delivery>,
}

impl Life {
    /// Returns whether a client's call may have removed the timer before any delivery.
    pub(super) fn may_be_withdrawn(&self) -> bool {
        self.withdrawn.iter().any(|(_, how)| *how != Withdrawn::Absent)
    }

    /// Returns the earliest due moment that the timer can have had at the moment `at`, in milliseconds of UTC. A call
    /// that stores or moves the timer may take effect at any moment before its answer. So the due moment that such a
    /// call has asked for remains possible until a later call has certainly replaced it.
    pub(super) fn due_at(&self, at: Moment) -> u64 {
        let created = self.acknowledged.map_or(0, |call| call.at);
        let placed = (created, self.place.as_ref().map_or(0, |place| place.due));
        let moved = self.moved.iter().filter(|moved| moved.call.asked <= at);
        let calls = core::iter::once(placed).chain(moved.map(|moved| (moved.call.at, moved.due)));
        let is_over = |answered: Moment| {
            let is_later =
                |moved: &Moved| moved.is_sure && answered <= moved.call.asked && moved.call.at <= at;
            self.moved.iter().any(is_later)
        };
        calls.filter(|(answered, _)| !is_over(*answered)).map(|(_, due)| due).min().unwrap_or_default()
    }

    /// Returns when the last call that stored or moved the timer was answered. Considers only answers up to the moment
    /// `before`.
    pub(super) fn last_change(&self, before: Moment) -> Moment {
        let moved = self.moved.iter().map(|moved| moved.call.at);
        let answers = moved.chain(self.acknowledged.map(|call| call.at));
        answers.filter(|at| *at <= before).max().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct Lives {
    /// The records of each timer. The map is sorted by id, so that two checks of the same history report the same.
    pub(super) timers: BTreeMap<Id, Life>,
    pub(super) faults: Vec<Fault>,
    pub(super) calls: u64,
    pub(super) deliveries: u64,
}

impl Lives {
    pub(super) fn of(records: impl IntoIterator<Item = Record>) -> Self {
        let mut records: Vec<Record> = records.into_iter().collect();
        // The sort is stable: records of one client keep their order.
        records.sort_by_key(|record| match record {
            Record::Invoked(at, ..) | Record::Answered(at, ..) => *at,
            Record::Delivered(delivery) => delivery.begun,
            Record::Fault(fault) => fault.from,
        });
        let mut lives = Self::default();
        let mut open: BTreeMap<u64, (Moment, Call)> = BTreeMap::new();
        let mut owners: HashMap<Box<str>, Id> = HashMap::new();
        for record in records {
            match record {
                Record::Invoked(asked, number, call) => {
                    lives.calls += 1;
                    if let Call::Place(place) = &call {
                        let life = lives.life(place.id);
                        if life.place.is_none() {
                            life.asked = asked;
                        }
                        life.place = Some(place.clone());
                    }
                    open.insert(number, (asked, call));
                }
                Record::Answered(at, number, answer) => {
                    if let Some((asked, call)) = open.remove(&number) {
                        lives.answered(Answered { asked, at }, call, answer, &mut owners);
                    }
                }
                Record::Delivered(delivery) => {
                    lives.deliveries += 1;
                    lives.life(delivery.id).deliveries.push(delivery);
                }
                Record::Fault(fault) => lives.faults.push(fault),
            }
        }
        // These calls have no answer: their client was killed, or the run has ended.
        for (asked, call) in open.into_values() {
            lives.answered(Answered { asked, at: Moment::MAX }, call, Answer::Unknown, &mut owners);
        }
        lives
    }

    fn answered(&mut self, span: Answered, call: Call, answer: Answer, owners: &mut HashMap<Box<str>, Id>) {
        match call {
            Call::Place(place) => self.placed(span, &place, answer, owners),
            Call::Cancel(id) => self.cancelled(span, id, answer),
            Call::Move(id, due) => self.moved(span, id, due, answer),
        }
    }

    fn moved(&mut self, call: Answered, id: Id, due: u64, answer: Answer) {
        match answer {
            Answer::Moved | Answer::Unknown => {
                let is_sure = answer == Answer::Moved;
                self.life(id).moved.push(Moved { call, due, is_sure });
            }
            Answer::NotFound => self.life(id).withdrawn.push((call, Withdrawn::Absent)),
            _ => {}
        }
    }

    fn life(&mut self, id: Id) -> &mut Life {
        self.timers.entry(id).or_default()
    }

    fn placed(&mut self, span: Answered, place: &Place, answer: Answer, owners: &mut HashMap<Box<str>, Id>) {
        let owner = place.key.as_ref().and_then(|key| owners.get(key).copied());
        let other = owner.filter(|owner| *owner != place.id && place.replaces);
        let life = self.life(place.id);
        match answer {
            Answer::Created => life.created.push(span),
            Answer::Repeated => {
                // An earlier call has replaced the timer that had the key, if that timer was still stored.
                if let Some(other) = other {
                    self.life(other).withdrawn.push((span, Withdrawn::InFlight));
                }
            }
            Answer::Replaced(old, was_leased) => {
                life.created.push(span);
                let how = if was_leased { Withdrawn::InFlight } else { Withdrawn::Surely };
                self.life(old).withdrawn.push((span, how));
            }
            Answer::Unknown => {
                life.has_doubt = true;
                if let Some(other) = other {
                    self.life(other).withdrawn.push((span, Withdrawn::Perhaps));
                }
                return;
            }
            _ => return,
        }
        self.life(place.id).acknowledged.get_or_insert(span);
        if let Some(key) = &place.key {
            owners.insert(key.clone(), place.id);
        }
    }

    fn cancelled(&mut self, span: Answered, id: Id, answer: Answer) {
        let how = match answer {
            Answer::Cancelled => Withdrawn::Surely,
            Answer::InFlight => Withdrawn::InFlight,
            Answer::NotFound => Withdrawn::Absent,
            Answer::Unknown => Withdrawn::Perhaps,
            _ => return,
        };
        self.life(id).withdrawn.push((span, how));
    }
}
