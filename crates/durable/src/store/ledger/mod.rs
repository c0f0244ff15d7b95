//! Defines how a store keeps timers in ordered tables: the entries that each timer has there, and how each operation
//! changes them.
//!
//! A [`Ledger`] exists for one transaction. A store that offers ordered tables gets its behaviour from the ledger, and
//! adds the transaction, the durability and the clock.
//!
//! # Parts
//! ```text
//!   Ledger              leads each call of a store to a part
//!   ├─ Lifecycle        the transitions of a timer, and what follows from each (lifecycle, placing, changes, leases)
//!   │  ├─ Remembered    the ids of ended timers
//!   │  └─ Timers        records with their entries: every change of a timer goes through it
//!   │     ├─ PhaseCounts, Hours   numbers that change with the timers
//!   │     ├─ Quarantine           records that could not be read
//!   │     └─ MadeDue              the timers made due, for Turns
//!   ├─ Turns            the choice of a claim's timers (turns, choice, waiting): outlives the transaction
//!   └─ Reader           reads of the tables, alone and for List, Check, horizon and scrub
//! ```
//!
//! | part | its tables | its state in a transaction | its invariants |
//! |---|---|---|---|
//! | `Timers` | timers, keys, keyless, due, leases, parked, dead, stopped, labels | its parts, whether entries were mended | L1, L2 |
//! | `PhaseCounts` | counts | the changes of the numbers | L3 |
//! | `Hours` | hours | the changes of the numbers | L4 |
//! | `Quarantine` | quarantine, a number in meta | the number of records set aside | L5 |
//! | `Remembered` | recent, forget | the moment | L6 |
//! | `MadeDue` | none | the first due moment, the entries before the frontier | L7 |
//! | `Turns` | none | the frontier, the namespaces that wait | T1 to T3 |
//!
//! Each module below is on a floor (a layer of modules), and never uses a module of a higher floor.
//! [`Check`](check::Check) checks the parts and the links between them.
//!
//! # Invariants
//! L1. A stored timer has the entries that `entries` lists, and no others. Each timer has a record, an entry by its
//!     phase, and an entry for each label. If it owns its key, it has an entry for the key. If it owns no key and is
//!     not dead, it has an entry among the timers without a key. If it is parked or dead, it has an entry among the
//!     stopped timers of its namespace.
//! L2. A timer owns its key unless it is dead or withdrawn. A key has at most one owner.
//! L3. The counts are the numbers of records by namespace and phase.
//! L4. The hours are the numbers of pending timers that are due in each hour of UTC.
//! L5. A record that could not be read is in quarantine, and not among the timers. The index entries of its timer stay
//!     until an operation reads them, or until a new timer with the id has the same entry. Until then the counts and
//!     the hours include the timer.
//! L6. A remembered id has an entry by id, and an entry by the moment until which it is remembered.
//! L7. The *frontier* is the place up to which claims have read the index by due moment. A transaction reports each
//!     pending timer whose index entry it stores before the frontier.

// Floor 0: the bytes of entries, and sums of changes.
mod deltas;
mod entries;
mod limits;
// Floor 1: the parts that go with timers.
mod counts;
mod made_due;
mod quarantine;
mod reader;
mod remembered;
// Floor 2: timers with their entries.
mod hours;
mod timers;
// Floor 3: operations on timers.
mod changes;
mod leases;
mod lifecycle;
mod placing;
// Floor 3: claims in turn.
mod choice;
mod turns;
mod waiting;
// Floor 3: reads of many timers.
mod check;
mod horizon;
mod lists;
mod scrub;
// Floor 4: the whole.
mod whole;

pub(crate) use choice::Chosen;
pub(crate) use entries::{entries, key_of, moment_of};
pub(crate) use horizon::LOOKS;
pub(crate) use limits::{admit, admit_import};
pub(crate) use scrub::{ScrubCursor, Step, Suspect};
pub(crate) use turns::Turns;
pub(crate) use whole::Ledger;
