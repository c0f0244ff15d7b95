//! Objects whose permitted fields depend on another field.
//!
//! Such an object becomes an enum. serde first reads a struct that has the fields of all variants, and then the struct
//! is converted. serde's own support for tagged enums is not used. It copies the object before it reads the fields, so
//! its errors lack the position in the text.

/// Returns the value of the field `name`. Fails if the field is missing, because the variant that the object names
/// needs it.
pub(crate) fn needed<T>(name: &str, field: Option<T>) -> Result<T, String> {
    field.ok_or_else(|| format!("the field `{name}` is missing"))
}

/// Fails if any of `fields` is set, because `variant` has no such field. Each entry has the name of a field, and
/// whether the field is set.
pub(crate) fn absent(variant: &str, fields: &[(&str, bool)]) -> Result<(), String> {
    match fields.iter().find(|(_, is_there)| *is_there) {
        Some((name, _)) => Err(format!("`{variant}` has no field `{name}`")),
        None => Ok(()),
    }
}
