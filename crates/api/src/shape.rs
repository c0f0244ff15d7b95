//! Objects whose fields depend on one of them.
//!
//! An enum with a tag is read by way of a struct with the fields of all its variants. serde's own way copies such an
//! object before it is read, and then a fault has no place in the text.

/// The value of a field that the variant needs.
pub(crate) fn needed<T>(name: &str, field: Option<T>) -> Result<T, String> {
    field.ok_or_else(|| format!("the field `{name}` is missing"))
}

/// Fails if one of these fields is there: the variant has none of them.
pub(crate) fn absent(variant: &str, fields: &[(&str, bool)]) -> Result<(), String> {
    match fields.iter().find(|(_, is_there)| *is_there) {
        Some((name, _)) => Err(format!("`{variant}` has no field `{name}`")),
        None => Ok(()),
    }
}
