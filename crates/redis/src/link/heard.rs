//! The events that a subscription reports.

/// An event of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// The subscription works. Messages arrive from this event on.
    Begin,
    /// A message has arrived on one of the subscription's channels.
    Message(&'a [u8]),
    /// The subscription has ended. Messages may be lost until the subscription begins again.
    End,
}
