//! Schemas of what verbs answer with `-o json`. The program never asks for one.

use crate::output::ErrorAnswer;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Returns the answer of a verb that cannot answer.
pub fn error_answer(generator: &mut SchemaGenerator) -> Schema {
    of::<ErrorAnswer<'_>>(generator)
}

/// Returns the schema of a type.
pub(crate) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// Returns the schema of an answer that has one of several forms.
pub(crate) fn either<const FORMS: usize>(forms: [Schema; FORMS]) -> Schema {
    json_schema!({ "anyOf": forms.as_slice() })
}
