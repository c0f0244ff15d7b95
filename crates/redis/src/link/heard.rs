//! The events of a subscription.

/// An event of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// Messages arrive from now on.
    Begin,
    /// A message.
    Message(&'a [u8]),
    /// Messages may be lost from now on.
    End,
}
