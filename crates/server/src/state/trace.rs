//! Reads and writes trace contexts in the format of the W3C recommendation "Trace Context". A context names a trace and
//! one of its spans. The context of a timer's creation is stored with the timer. Each delivery has its own span in the
//! same trace.

use core::fmt;

/// A trace context: the id of a trace, and the id of a span in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    id: u128,
    /// The id of the span in this context. New spans become children of this span.
    parent: u64,
    /// Whether the spans of the trace are recorded.
    is_sampled: bool,
}

/// Parses lowercase hexadecimal digits. Returns `None` for zero and for other characters.
fn hex(text: &str) -> Option<u128> {
    // `from_str_radix` alone would also accept a sign and uppercase letters.
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|number| is_hex && *number != 0)
}

/// Maps the id of a trace to a number that is at least 0 and less than 1. If the number is less than the fraction of
/// traces to record, the trace is recorded. Uses only the last 53 bits, which are random in the ids of traces and of
/// timers.
fn place_of(id: u128) -> f64 {
    const BITS: u32 = 53;
    let last = u64::try_from(id & ((1 << BITS) - 1)).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "an f64 has 53 bits")]
    let (last, all) = (last as f64, (1_u64 << BITS) as f64);
    last / all
}

impl Trace {
    /// Parses the value of the header `traceparent`. Returns `None` for an invalid value, which callers ignore. For an
    /// unknown version, reads only the part that version 00 defines.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Version 00 has 2 + 32 + 16 + 2 digits and three hyphens.
        let (head, rest) = text.split_at_checked(55)?;
        let mut parts = head.split('-');
        let (version, id, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_long = id.len() == 32 && parent.len() == 16 && flags.len() == 2 && version.len() == 2;
        let is_version_known = match version {
            "00" => rest.is_empty(),
            "ff" => false,
            _ => hex(version).is_some() && (rest.is_empty() || rest.starts_with('-')),
        };
        if !is_long || parts.next().is_some() || !is_version_known {
            return None;
        }
        // `hex` refuses zero, which is invalid for the two ids but not for the flags.
        let flags = if flags == "00" { 0 } else { hex(flags)? };
        let (id, parent) = (hex(id)?, u64::try_from(hex(parent)?).ok()?);
        Some(Self { id, parent, is_sampled: flags & 1 == 1 })
    }

    /// Makes the context of the first span in a new trace. `share` is the fraction of new traces that is recorded, from
    /// 0 to 1. Returns `None` if the system gives no random number.
    pub(crate) fn root(share: f64) -> Option<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        Self::of(u128::from_ne_bytes(bytes), share)
    }

    /// Makes the context of the first span in the trace `id`. This span has no parent. `share` is the fraction of trace
    /// ids that is recorded, from 0 to 1. Returns `None` if the system gives no random number.
    pub(crate) fn of(id: u128, share: f64) -> Option<Self> {
        // The recommendation forbids zero as the id of a trace or span. `child` replaces the zero in `parent`.
        Self { id: id.max(1), parent: 0, is_sampled: place_of(id) < share }.child()
    }

    #[cfg(feature = "otel")]
    pub(crate) const fn id(self) -> u128 {
        self.id
    }

    /// Returns the id of the span in this context, which is the parent of new spans.
    pub(crate) const fn span(self) -> u64 {
        self.parent
    }

    /// Returns whether the spans of the trace are recorded.
    pub(crate) const fn is_sampled(self) -> bool {
        self.is_sampled
    }

    /// Makes the context of a new span in the same trace. Returns `None` if the system gives no random number.
    pub(crate) fn child(self) -> Option<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).ok()?;
        // The recommendation forbids zero as the id of a span.
        Some(Self { parent: u64::from_ne_bytes(bytes).max(1), ..self })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.id, self.parent, u8::from(self.is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_after_the_recommendation() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = Trace::parse(good).unwrap();
        assert_eq!(read.to_string(), good);
        for (text, shown) in [
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what", good),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", good),
            // Unknown flags are not passed on.
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", good),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            ),
        ] {
            assert_eq!(Trace::parse(text).map(|trace| trace.to_string()).as_deref(), Some(shown), "{text}");
        }
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319+-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319cb7-ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-é",
            "0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(Trace::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_share_of_the_traces_is_recorded_and_the_id_decides() {
        let is_sampled = |id, share| Trace::of(id, share).unwrap().is_sampled;
        for id in [1, 1 << 52, (1 << 53) - 1, u128::MAX] {
            assert!(is_sampled(id, 1.0) && !is_sampled(id, 0.0), "{id:x}");
        }
        assert!(is_sampled((1 << 51) + 5, 0.5) && !is_sampled((1 << 52) + 5, 0.5));
        assert!(Trace::root(1.0).unwrap().is_sampled && !Trace::root(0.0).unwrap().is_sampled);
    }

    #[test]
    fn a_child_has_the_trace_and_a_span_of_its_own() {
        let trace = Trace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        let (first, second) = (trace.child().unwrap(), trace.child().unwrap());
        assert_eq!((first.id, first.is_sampled), (trace.id, true));
        assert!(first.parent != trace.parent && first.parent != second.parent);
        assert_eq!(Trace::parse(&first.to_string()), Some(first));
    }
}
