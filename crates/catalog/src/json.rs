//! JSON that people write. A key that an object has twice is a mistake: a reader would keep one of the two
//! values, and the other would be lost without a word.

use schema::names::quoted;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Reads a text.
///
/// # Errors
/// Returns why it is no JSON, or which key an object has twice, with the line. The latter is
/// [`serde_json::error::Category::Data`].
pub(crate) fn read(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str::<Unique>(text).map(|Unique(value)| value)
}

/// A value in which no object has a key twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(A::Error::custom(format!("{} is there twice in one object", quoted(&key))));
            }
            let Unique(value) = object.next_value()?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_once_at_any_depth() {
        for text in [
            "null",
            "[1, -2, 1.5, \"a\\u00e4\", true]",
            r#"{"a": {"b": [1, {"c": 18446744073709551615}]}, "b": {"a": {}}}"#,
        ] {
            assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        for (text, line) in [
            ("{\"a\": 1, \"a\": 1}", 1),
            ("{\"x\": [\n{\"a\": 1,\n\"a\": {}}]}", 3),
            ("{\"a\": 1, \"\\u0061\": 2}", 1),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.is_data() && error.line() == line, "{text}: {error}");
            assert!(error.to_string().starts_with("\"a\" is there twice in one object"), "{error}");
        }
        assert!(read("{\"a\": }").unwrap_err().is_syntax());
    }
}
