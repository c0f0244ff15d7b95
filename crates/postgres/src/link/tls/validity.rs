//! Checks the times between which the certificate of a trusted authority is valid. rustls checks such times only in the
//! server's certificate and in intermediate certificates.

use super::der::{SEQUENCE, element};
use super::fault::Fault;
use core::time::Duration;
use rustls::pki_types::UnixTime;

const VERSION: u8 = 0xa0;
const INTEGER: u8 = 0x02;
/// The tag of a time in DER whose year has two digits.
const UTC_TIME: u8 = 0x17;
/// The tag of a time in DER whose year has four digits.
const GENERALIZED_TIME: u8 = 0x18;

/// Checks that the certificate of an authority is valid at this moment.
pub(super) fn check(certificate: &[u8], now: UnixTime) -> Result<(), Fault> {
    let unreadable =
        || Fault::new("the certificate of an authority cannot be used: its times cannot be read");
    let (from, until) = read(certificate).ok_or_else(unreadable)?;
    if now > until {
        return Err(Fault::of_expired_authority(until, now));
    }
    if now < from {
        return Err(Fault::of_early_authority(from, now));
    }
    Ok(())
}

/// Returns the first and the last moment at which a certificate is valid (RFC 5280, section 4.1).
fn read(certificate: &[u8]) -> Option<(UnixTime, UnixTime)> {
    let (fields, _) = element(SEQUENCE, certificate)?;
    let (fields, _) = element(SEQUENCE, fields)?;
    // A certificate of version 1 does not name its version.
    let fields = element(VERSION, fields).map_or(fields, |(_, rest)| rest);
    let (_serial_number, fields) = element(INTEGER, fields)?;
    let (_algorithm, fields) = element(SEQUENCE, fields)?;
    let (_issuer, fields) = element(SEQUENCE, fields)?;
    let (times, _) = element(SEQUENCE, fields)?;
    let (from, times) = moment(times)?;
    let (until, _) = moment(times)?;
    Some((from, until))
}

/// Reads a time such as `301231235959Z`. Returns the moment, and the bytes after it.
fn moment(der: &[u8]) -> Option<(UnixTime, &[u8])> {
    let (century, text, rest) = match element(UTC_TIME, der) {
        Some((text, rest)) => (None, text, rest),
        None => {
            let (text, rest) = element(GENERALIZED_TIME, der)?;
            let (digits, text) = text.split_at_checked(2)?;
            (Some(number(digits)?), text, rest)
        }
    };
    let (text, end) = text.split_at_checked(12)?;
    if end != b"Z" {
        return None;
    }
    let mut parts = text.chunks(2).map(number);
    let mut part = |least, most| parts.next()?.filter(|part| (least..=most).contains(part));
    let (year, month, day) = (part(0, 99)?, part(1, 12)?, part(1, 31)?);
    let (hour, minute, second) = (part(0, 23)?, part(0, 59)?, part(0, 59)?);
    // Without a century, the years 50 to 99 are those from 1950 on.
    let year = year + 100 * century.unwrap_or(if year < 50 { 20 } else { 19 });
    let days = days(year, month, day);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    // A moment before 1970 counts as the start of 1970.
    let seconds = u64::try_from(seconds).unwrap_or_default();
    Some((UnixTime::since_unix_epoch(Duration::from_secs(seconds)), rest))
}

fn number(digits: &[u8]) -> Option<i64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    digits.iter().try_fold(0, |sum, byte| Some(10 * sum + digit(byte)?))
}

/// Returns the number of days from the start of 1970 to this day of the Gregorian calendar. The calculation begins each
/// year with March, so that a leap day is the last day of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // The months from March on have 31, 30, 31, 30, 31 days, again and again.
    365 * year + leap_days + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<u64> {
        let der = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes(), b"rest"].concat();
        moment(&der).map(|(moment, rest)| {
            assert_eq!(rest, b"rest");
            moment.as_secs()
        })
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "700101000001Z", Some(1)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (UTC_TIME, "000229123456Z", Some(951_827_696)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "21000301000000Z", Some(4_107_542_400)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "19691231235959Z", Some(0)),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000+0000", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "70010100000xZ", None),
            (GENERALIZED_TIME, "700101000000Z", None),
        ] {
            assert_eq!(seconds(tag, text), expected, "{text}");
        }
    }

    #[test]
    fn the_times_of_a_certificate_are_read() {
        let mut parameters = rcgen::CertificateParams::new(["db".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2020, 2, 29);
        parameters.not_after = rcgen::date_time_ymd(2900, 1, 1);
        let made = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let (from, until) = read(made.der()).unwrap();
        assert_eq!((from.as_secs(), until.as_secs()), (1_582_934_400, 29_348_006_400));
        for end in 0..made.der().len().min(100) {
            assert_eq!(read(&made.der()[..end]), None, "a certificate that is cut off");
        }
    }
}
