//! A history, sorted by timers.

use super::{Answer, Call, Delivery, Fault, Id, Moment, Place, Record};
use std::collections::{BTreeMap, HashMap};

/// How surely a timer was withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawn {
    /// It was stored and not in delivery. It is no longer stored.
    Surely,
    /// A delivery may have begun, and is the last delivery.
    InFlight,
    /// The store did not have it.
    Absent,
    /// An answer was lost, or did not come.
    Perhaps,
}

/// A call that has its answer. Its effect happened between these moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) asked: Moment,
    pub(super) at: Moment,
}

/// All that concerns one timer.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) place: Option<Place>,
    /// The start of the first call that stores it.
    pub(super) asked: Moment,
    /// Each call whose answer says that it has stored it.
    pub(super) created: Vec<Answered>,
    /// The first call whose answer says that it is stored.
    pub(super) acknowledged: Option<Answered>,
    /// Whether an answer was lost, or did not come.
    pub(super) has_doubt: bool,
    /// Withdrawals.
    pub(super) withdrawn: Vec<(Answered, Withdrawn)>,
    /// Deliveries in the order of their begins.
    pub(super) deliveries: Vec<Delivery>,
}

impl Life {
    /// Whether the timer may be gone without a delivery.
    pub(super) fn may_be_withdrawn(&self) -> bool {
        self.withdrawn.iter().any(|(_, how)| *how != Withdrawn::Absent)
    }
}

#[derive(Debug, Default)]
pub(super) struct Lives {
    /// In the order of ids, so that two checks of one history say the same.
    pub(super) timers: BTreeMap<Id, Life>,
    pub(super) faults: Vec<Fault>,
    pub(super) calls: u64,
    pub(super) deliveries: u64,
}

impl Lives {
    pub(super) fn of(records: impl IntoIterator<Item = Record>) -> Self {
        let mut records: Vec<Record> = records.into_iter().collect();
        // Stable: the records of one client stay in their order.
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
        // Calls without an answer: their client was killed, or the run has ended.
        for (asked, call) in open.into_values() {
            lives.answered(Answered { asked, at: Moment::MAX }, call, Answer::Unknown, &mut owners);
        }
        lives
    }

    fn answered(&mut self, span: Answered, call: Call, answer: Answer, owners: &mut HashMap<Box<str>, Id>) {
        match call {
            Call::Place(place) => self.placed(span, &place, answer, owners),
            Call::Cancel(id) => self.cancelled(span, id, answer),
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
                // An earlier call has displaced the owner, if there still was one.
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
