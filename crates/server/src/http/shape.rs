//! Where a request's body has objects and whole numbers, by its schema.
//!
//! The types that read a body take a list for an object: each item is a field, in the order of the type. A sender that
//! sends a list did not mean that. The schemas are those of the OpenAPI document.

use serde_json::Value;
use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use utoipa::ToSchema;

/// What a value may be, as far as lists, objects and whole numbers are concerned.
#[derive(Debug, Default)]
pub(super) struct Shape {
    is_object: bool,
    is_list: bool,
    is_whole_number: bool,
    items: Option<Box<Self>>,
    fields: BTreeMap<String, Self>,
    /// The fields that have no names of their own.
    others: Option<Box<Self>>,
}

/// The shapes of the types that were asked for.
static KNOWN: RwLock<Option<HashMap<TypeId, Arc<Shape>>>> = RwLock::new(None);

impl Shape {
    /// The shape of a type's values.
    pub(super) fn of<T: ToSchema + 'static>() -> Arc<Self> {
        let id = TypeId::of::<T>();
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(shape) = known.as_ref().and_then(|known| known.get(&id)) {
            return Arc::clone(shape);
        }
        drop(known);
        let mut named = Vec::new();
        T::schemas(&mut named);
        let json = |schema| serde_json::to_value(schema).unwrap_or_default();
        let named = named.into_iter().map(|(name, schema)| (name, json(schema))).collect();
        let mut shape = Self::default();
        shape.add(&json(T::schema()), &named);
        let shape = Arc::new(shape);
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_default().insert(id, Arc::clone(&shape));
        shape
    }

    /// Adds what a schema permits.
    fn add(&mut self, schema: &Value, named: &BTreeMap<String, Value>) {
        let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        if let Some(schema) = name.and_then(|name| named.get(name)) {
            return self.add(schema, named);
        }
        let parts = ["oneOf", "anyOf", "allOf"].map(|word| schema[word].as_array());
        for part in parts.into_iter().flatten().flatten() {
            self.add(part, named);
        }
        let is_of = |word: &str| match &schema["type"] {
            Value::Array(words) => words.iter().any(|of| of == word),
            of => of == word,
        };
        let is_anything = schema["type"].is_null() && parts.iter().all(Option::is_none);
        self.is_object |= is_of("object");
        self.is_list |= is_of("array") || is_anything;
        self.is_whole_number |= is_of("integer");
        if schema["items"].is_object() {
            self.items.get_or_insert_default().add(&schema["items"], named);
        }
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            self.fields.entry(name.clone()).or_default().add(schema, named);
        }
        if schema["additionalProperties"].is_object() {
            self.others.get_or_insert_default().add(&schema["additionalProperties"], named);
        }
    }

    /// Whether a value is to be an object, and no list.
    pub(super) fn refuses_lists(&self) -> bool {
        self.is_object && !self.is_list
    }

    /// Whether a value is to be a whole number.
    pub(super) fn is_whole_number(&self) -> bool {
        self.is_whole_number
    }

    /// The shape of a list's items.
    pub(super) fn item(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    /// The shape of a field.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.fields.get(name).or(self.others.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_api::{Batch, NamespaceLimits, NewSchedule, NewTimer};

    #[test]
    fn the_objects_of_a_body_are_known_at_each_depth() {
        let batch = Shape::of::<Batch>();
        assert!(batch.refuses_lists());
        let changes = batch.field("changes").unwrap();
        assert!(!changes.refuses_lists());
        let change = changes.item().unwrap();
        assert!(change.refuses_lists());
        let timer = change.field("timer").unwrap();
        assert!(timer.refuses_lists());
        let backoff = timer.field("policy").and_then(|policy| policy.field("backoff")).unwrap();
        assert!(backoff.refuses_lists());
        let callback = Shape::of::<NewTimer>();
        let callback = callback.field("callback").unwrap();
        assert!(callback.refuses_lists() && callback.field("headers").unwrap().refuses_lists());
        assert!(!callback.field("json").unwrap().refuses_lists(), "a callback's body may be anything");
        assert!(Shape::of::<NewSchedule>().field("monthly").unwrap().refuses_lists());
        assert!(!Shape::of::<NamespaceLimits>().field("allowed_hosts").unwrap().refuses_lists());
        assert!(timer.field("delay_ms").unwrap().is_whole_number());
        assert!(!callback.field("json").unwrap().is_whole_number());
    }
}
