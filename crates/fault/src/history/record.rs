//! Records of a history, and their text form: one line for each record.

use core::fmt;
use core::str::FromStr;
use std::fs;
use std::io;
use std::path::Path;

/// A moment in microseconds of the machine's monotonic clock.
pub type Moment = u64;

/// The id of a timer.
pub type Id = u128;

/// An event of a run, as a client, the test itself, or the receiver has noted it. The receiver is the process to which
/// nodes report their deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A client begins a call. The number identifies the call.
    Invoked(Moment, u64, Call),
    /// A client has got the answer to the call that has this number.
    Answered(Moment, u64, Answer),
    /// The receiver got a node's report that a handler was called.
    Delivered(Delivery),
    /// The run caused a fault, or a node noticed a fault.
    Fault(Fault),
}

/// An operation that a client asks the store to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Stores a timer.
    Place(Place),
    /// Cancels the timer that has this id.
    Cancel(Id),
    /// Moves the due moment of the timer that has this id. The number is the new moment, in milliseconds of UTC.
    Move(Id, u64),
}

/// A timer that a client asks the store to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The timer's id, chosen by the client.
    pub id: Id,
    /// The timer's key. Only one client uses the key, and never in two calls at a time. `None` if the timer has no key.
    pub key: Option<Box<str>>,
    /// When the timer is due, in milliseconds of UTC.
    pub due: u64,
    /// Whether the new timer replaces a timer that has the same key. If false, the store refuses the new timer.
    pub replaces: bool,
    /// Whether the store delivers the timer at most once, instead of at least once.
    pub is_once: bool,
    /// The period and the last instant of the series that the timer begins, in milliseconds. `None` if the timer begins
    /// no series.
    pub series: Option<(u64, u64)>,
}

/// A store's answer to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call has stored the timer.
    Created,
    /// An earlier call with the same id had already stored the timer.
    Repeated,
    /// The new timer replaced the timer with this id. The flag says whether a delivery of the old timer may have begun.
    Replaced(Id, bool),
    /// The store refused the new timer, because the timer with this id has the same key.
    KeyExists(Id),
    /// The store removed the timer before any delivery.
    Cancelled,
    /// The store removed the timer, but a delivery had begun.
    InFlight,
    /// The store moved the timer's due moment.
    Moved,
    /// The store did not move the timer, because a delivery had begun, or because the timer is dead: all attempts to
    /// deliver it have failed.
    Leased,
    /// The store has no timer with the id of the call.
    NotFound,
    /// The client rolled back the transaction in which it made the call. So the call had no effect.
    RolledBack,
    /// The call failed, and certainly had no effect.
    Failed,
    /// The call failed, and it is unknown whether it had an effect.
    Unknown,
}

/// A call of a handler, as the calling node reported it to the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When the receiver got the node's report.
    pub arrived: Moment,
    /// When the node called the handler.
    pub begun: Moment,
    /// The id of the delivered timer.
    pub id: Id,
    /// The id under which the store keeps the timer. It equals `id` if the client chose the store's id.
    pub stored: Id,
    /// The number of the attempt: the number of the timer's earlier failures, plus one.
    pub attempt: u32,
    /// The number of this delivery among the timer's deliveries, counted from 1.
    pub delivery: u32,
    /// When this delivery was due, in milliseconds of UTC.
    pub due: u64,
    /// The timer's due moment before any retry moved it, in milliseconds of UTC.
    pub scheduled: u64,
    /// The name of the node that called the handler.
    pub node: Box<str>,
    /// The id of the series to which the timer belongs. `None` if the timer belongs to no series.
    pub series: Option<Id>,
    /// Whether the handler succeeded. If false, the attempt has failed.
    pub is_done: bool,
}

/// The kind of a fault. A fault explains repeated deliveries, and other effects that a store need not prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A node's process was killed.
    Kill,
    /// A node's process was stopped for a time, or a busy machine did not run the process.
    Pause,
    /// A server was killed, stopped, or too busy to answer.
    Server,
    /// A PostgreSQL server was killed. The server may have lost changes of the last second before the kill, but only
    /// changes that do not wait for the disk: nodes' claims of timers for delivery, and the records that deliveries
    /// have ended.
    Crash,
    /// A replica took over from its primary.
    Failover,
    /// The network between nodes and servers failed: connections were cut or delayed, or replies were lost.
    Network,
}

/// A fault that the run caused on purpose, or that a node noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of this fault.
    pub cause: Cause,
    /// The name of the node that the fault hit; `None` for a fault of servers or networks.
    pub node: Option<Box<str>>,
    /// When the fault began.
    pub from: Moment,
    /// When the fault ended.
    pub until: Moment,
}

pub(super) const CAUSES: [(Cause, &str); 6] = [
    (Cause::Kill, "kill"),
    (Cause::Pause, "pause"),
    (Cause::Server, "server"),
    (Cause::Crash, "crash"),
    (Cause::Failover, "failover"),
    (Cause::Network, "network"),
];

pub(super) const ANSWERS: [(Answer, &str); 10] = [
    (Answer::Created, "created"),
    (Answer::Repeated, "repeated"),
    (Answer::Cancelled, "cancelled"),
    (Answer::InFlight, "in-flight"),
    (Answer::Moved, "moved"),
    (Answer::Leased, "leased"),
    (Answer::NotFound, "not-found"),
    (Answer::RolledBack, "rolled-back"),
    (Answer::Failed, "failed"),
    (Answer::Unknown, "unknown"),
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = CAUSES.iter().find(|(cause, _)| cause == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

/// Writes an optional value as a word. `None` becomes the word `-`.
fn maybe<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced(old, was_leased) => write!(f, "replaced {old:x} {}", u8::from(*was_leased)),
            Self::KeyExists(holder) => write!(f, "key-exists {holder:x}"),
            other => {
                f.write_str(ANSWERS.iter().find(|(answer, _)| answer == other).map_or("", |(_, name)| name))
            }
        }
    }
}

/// Writes a record as one line of words, separated by spaces. Keys and names of nodes contain no spaces.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoked(at, number, Call::Place(place)) => {
                let Place { id, key, due, replaces, is_once, series } = place;
                let (replaces, is_once) = (u8::from(*replaces), u8::from(*is_once));
                let (every, last) = (series.map(|series| series.0), series.map(|series| series.1));
                let (key, every, last) = (maybe(key.as_deref()), maybe(every), maybe(last));
                write!(f, "place {at} {number} {id:x} {due} {replaces} {is_once} {key} {every} {last}")
            }
            Self::Invoked(at, number, Call::Cancel(id)) => write!(f, "cancel {at} {number} {id:x}"),
            Self::Invoked(at, number, Call::Move(id, due)) => write!(f, "move {at} {number} {id:x} {due}"),
            Self::Answered(at, number, answer) => write!(f, "answer {at} {number} {answer}"),
            Self::Delivered(delivered) => {
                let Delivery { arrived, begun, id, stored, attempt, delivery, due, .. } = delivered;
                let Delivery { scheduled, node, series, is_done, .. } = delivered;
                let (series, is_done) = (maybe(series.map(|id| format!("{id:x}"))), u8::from(*is_done));
                write!(
                    f,
                    "delivery {arrived} {begun} {id:x} {stored:x} {attempt} {delivery} {due} {scheduled} "
                )?;
                write!(f, "{node} {series} {is_done}")
            }
            Self::Fault(Fault { cause, node, from, until }) => {
                write!(f, "fault {cause} {} {from} {until}", maybe(node.as_deref()))
            }
        }
    }
}

/// The error for a line that is not a record. The text is the line.
#[derive(Debug)]
pub struct NoRecord(pub Box<str>);

impl fmt::Display for NoRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a record: {:?}", self.0)
    }
}

impl core::error::Error for NoRecord {}

/// Reads the words of a record's line, one after another.
struct Words<'a>(core::str::Split<'a, char>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn get<T: FromStr>(&mut self) -> Option<T> {
        self.word()?.parse().ok()
    }

    fn id(&mut self) -> Option<Id> {
        Id::from_str_radix(self.word()?, 16).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.word()? {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }
    }

    /// Reads an optional value from the next word. Returns `Some(None)` for the word `-`, and `None` for an unreadable
    /// word.
    fn maybe<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
        match self.word()? {
            "-" => Some(None),
            word => read(word).map(Some),
        }
    }

    fn record(&mut self) -> Option<Record> {
        let record = match self.word()? {
            "place" => {
                let (at, number, id) = (self.get()?, self.get()?, self.id()?);
                let (due, replaces, is_once) = (self.get()?, self.flag()?, self.flag()?);
                let key = self.maybe(|key| Some(key.into()))?;
                let every = self.maybe(|every| every.parse().ok())?;
                let series = every.zip(self.maybe(|last| last.parse().ok())?);
                let place = Place { id, key, due, replaces, is_once, series };
                Record::Invoked(at, number, Call::Place(place))
            }
            "cancel" => Record::Invoked(self.get()?, self.get()?, Call::Cancel(self.id()?)),
            "move" => Record::Invoked(self.get()?, self.get()?, Call::Move(self.id()?, self.get()?)),
            "answer" => {
                let (at, number) = (self.get()?, self.get()?);
                let answer = match self.word()? {
                    "replaced" => Answer::Replaced(self.id()?, self.flag()?),
                    "key-exists" => Answer::KeyExists(self.id()?),
                    word => ANSWERS.iter().find(|(_, name)| *name == word)?.0,
                };
                Record::Answered(at, number, answer)
            }
            "delivery" => Record::Delivered(Delivery {
                arrived: self.get()?,
                begun: self.get()?,
                id: self.id()?,
                stored: self.id()?,
                attempt: self.get()?,
                delivery: self.get()?,
                due: self.get()?,
                scheduled: self.get()?,
                node: self.word()?.into(),
                series: self.maybe(|id| Id::from_str_radix(id, 16).ok())?,
                is_done: self.flag()?,
            }),
            "fault" => {
                let word = self.word()?;
                let cause = CAUSES.iter().find(|(_, name)| *name == word)?.0;
                let node = self.maybe(|node| Some(node.into()))?;
                Record::Fault(Fault { cause, node, from: self.get()?, until: self.get()? })
            }
            _ => return None,
        };
        self.word().is_none().then_some(record)
    }
}

impl FromStr for Record {
    type Err = NoRecord;

    fn from_str(line: &str) -> Result<Self, NoRecord> {
        Words(line.split(' ')).record().ok_or_else(|| NoRecord(line.into()))
    }
}

/// Reads the records of a file, one a line. Ignores an unfinished last line, because its writer may have been killed.
///
/// # Errors
///
/// Fails if the file cannot be read, or has a line that is not a record.
pub fn read(file: &Path) -> io::Result<Vec<Record>> {
    let text = fs::read_to_string(file)?;
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.map(|line| line.parse().map_err(io::Error::other)).collect()
}
