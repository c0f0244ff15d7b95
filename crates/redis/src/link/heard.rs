//! The events that a subscription reports.

/// An event that a subscription reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// The subscription works: messages arrive from now on.
    Begin,
    /// A message has arrived on one of the channels.
    Message(&'a [u8]),
    /// The subscription has ended: messages may be lost until it begins again.
    End,
}
