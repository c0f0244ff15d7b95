//! Objects whose fields depend on one of them.
//!
//! An enum with a tag is read by way of a struct with the fields of all its variants. serde's own way copies such an
//! object before it is read, and then a fault has no place in the text.

/// Returns the value of a field that a variant needs. Fails if the field is missing.
pub(crate) fn needed<T>(name: &str, field: Option<T>) -> Result<T, String> {
    field.ok_or_else(|| format!("the field `{name}` is missing"))
}

/// Fails if a field in `fields` is set, because the variant has no such field. The flag says whether the field is set.
pub(crate) fn absent(variant: &str, fields: &[(&str, bool)]) -> Result<(), String> {
    match fields.iter().find(|(_, is_there)| *is_there) {
        Some((name, _)) => Err(format!("`{variant}` has no field `{name}`")),
        None => Ok(()),
    }
}
