//! The form of a question.

/// A question: how does a figure of ours compare with the same figure of another contestant?
pub(super) struct Question {
    pub(super) text: &'static str,
    pub(super) workload: &'static str,
    pub(super) case: &'static str,
    pub(super) column: &'static str,
    pub(super) ours: &'static str,
    pub(super) against: Against,
    /// The reason why our contestant loses, with places for figures in braces. Empty if ours does not lose, or if the
    /// reason is unknown.
    pub(super) why: &'static str,
}

pub(super) enum Against {
    /// The best of the other contestants that read their clocks as often as ours.
    Best,
    /// The best of the named contestants. Only these contestants do the same work as ours.
    Only(&'static [&'static str]),
}
