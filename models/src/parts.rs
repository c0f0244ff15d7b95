//! The parts that the models share.

/// Decides how safe a change is when its caller gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// The server has the change.
    None,
    /// The server that would take over has the change as well.
    Wait,
}

/// How often something goes wrong in a run, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// The number of answers that are lost.
    pub losses: u8,
    /// The number of times that a living node sleeps past the end of a lease. The lease of a node that is gone ends
    /// anyway.
    pub sleeps: u8,
    /// The number of times that a living owner's time ends.
    pub lapses: u8,
    /// The number of failovers.
    pub failovers: u8,
    /// The number of nodes that crash for good. The last node lives.
    pub crashes: u8,
    /// The number of transactions that are rolled back. Redis has none.
    pub rollbacks: u8,
    /// The number of renewals. They do no harm, but each makes the search longer.
    pub renewals: u8,
    /// The number of claims that pass over a lane because it has its share. Only PostgreSQL's model has lanes.
    pub passes: u8,
}

/// The answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The timer is stored, or it was stored before.
    Created,
    /// The timer is cancelled.
    Cancelled,
    /// The timer is cancelled, and a delivery had begun.
    InFlight,
    /// No timer is stored.
    NotFound,
    /// The client has given up, or has never asked.
    GivenUp,
}

/// A lease as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The token.
    pub token: u8,
    /// The number of renewals that were answered.
    pub renewals: u8,
}
