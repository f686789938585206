//! A schema in which every name is one of `names.json`, all names are required, and no others are allowed. Of what the
//! type says, only that is written which `names.json` does not say already.

use serde_json::{Map, Value, json};
use std::path::Path;

/// What the names in answers mean.
pub(crate) struct Names(Map<String, Value>);

type Object = Map<String, Value>;

impl Names {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: Value = serde_json::from_str(&text).map_err(|error| format!("names.json: {error}"))?;
        match file["$defs"].as_object() {
            Some(names) => Ok(Self(names.clone())),
            None => Err("names.json has no $defs".to_owned()),
        }
    }

    /// Returns the schema of an answer as a file of its own.
    pub(crate) fn closed(&self, title: &str, schema: &Value) -> Result<Value, String> {
        let mut file = Object::new();
        file.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        file.insert("title".to_owned(), title.into());
        file.extend(self.answer(schema)?);
        Ok(Value::Object(file))
    }

    /// Returns the schema of an object, or of one of several with what is said about each.
    fn answer(&self, schema: &Value) -> Result<Object, String> {
        let Some(either) = schema["anyOf"].as_array() else { return self.shape(schema) };
        let branch = |schema: &Value| {
            let mut branch = Object::new();
            if let Some(about) = schema.get("description") {
                branch.insert("description".to_owned(), about.clone());
            }
            branch.extend(self.answer(schema)?);
            Ok(Value::Object(branch))
        };
        let branches = either.iter().map(branch).collect::<Result<Vec<Value>, String>>()?;
        Ok(Object::from_iter([("oneOf".to_owned(), branches.into())]))
    }

    /// Returns the form of a value, without what is said about it.
    fn shape(&self, schema: &Value) -> Result<Object, String> {
        let mut shape = Object::new();
        let mut add = |key: &str, value: Value| shape.insert(key.to_owned(), value);
        if let Some(words) = words(schema) {
            add("type", "string".into());
            add("enum", words.into());
        } else if let Some(properties) = schema["properties"].as_object() {
            let names = properties.iter();
            let closed = names.map(|(name, schema)| Ok((name.clone(), self.property(name, schema)?)));
            add("type", "object".into());
            add("properties", Value::Object(closed.collect::<Result<Object, String>>()?));
            add("required", schema["required"].clone());
            add("additionalProperties", false.into());
        } else if let Some(items) = schema.get("items") {
            add("type", "array".into());
            add("items", Value::Object(self.shape(items)?));
        } else if let Some(either) = schema["anyOf"].as_array() {
            let kinds: Vec<Value> = either.iter().map(|schema| schema["type"].clone()).collect();
            add("type", kinds.into());
        } else {
            add("type", schema["type"].clone());
            if let Some(values) = schema["additionalProperties"].as_object() {
                add("additionalProperties", Value::Object(self.shape(&json!(values))?));
            }
        }
        Ok(shape)
    }

    /// Returns what the value of a name is.
    fn property(&self, name: &str, schema: &Value) -> Result<Value, String> {
        let meaning = self.0.get(name).ok_or_else(|| format!("names.json does not have {name}"))?;
        let (schema, may_be_null) = without_null(schema);
        let mut shape = self.shape(&schema)?;
        agrees(&shape, meaning).map_err(|why| format!("{name}: {why}"))?;
        shape.retain(|key, value| !says(meaning, key, value));
        shape.insert("$ref".to_owned(), format!("names.json#/$defs/{name}").into());
        Ok(if may_be_null { json!({ "anyOf": [shape, { "type": "null" }] }) } else { shape.into() })
    }
}

/// Returns the words of an enumeration.
fn words(schema: &Value) -> Option<Vec<Value>> {
    if let Some(words) = schema["enum"].as_array() {
        return Some(words.clone());
    }
    if let Some(word) = schema.get("const") {
        return Some(vec![word.clone()]);
    }
    // Each word with its own description, or several without one.
    let either = schema["oneOf"].as_array()?;
    let words = either.iter().map(words).collect::<Option<Vec<_>>>()?;
    Some(words.into_iter().flatten().collect())
}

/// Returns a schema that does not allow null, and whether the given one did.
fn without_null(schema: &Value) -> (Value, bool) {
    let mut schema = schema.clone();
    if let Some(either) = schema["anyOf"].as_array_mut() {
        let before = either.len();
        either.retain(|schema| schema["type"] != "null");
        let may_be_null = either.len() < before;
        return match either.as_slice() {
            [value] => (value.clone(), may_be_null),
            _ => (schema, may_be_null),
        };
    }
    let Some([kind, null]) = schema["type"].as_array().map(Vec::as_slice) else { return (schema, false) };
    let may_be_null = null == "null";
    if may_be_null {
        schema["type"] = kind.clone();
    }
    if let Some(words) = schema["enum"].as_array_mut() {
        words.retain(|word| !word.is_null());
    }
    (schema, may_be_null)
}

/// Says how a type contradicts the meaning of a name.
fn agrees(shape: &Object, meaning: &Value) -> Result<(), String> {
    let is_one_of = |value: &Value, allowed: &Value| match allowed {
        Value::Array(allowed) => allowed.contains(value),
        allowed => value == allowed,
    };
    let kind = &shape["type"];
    let kinds = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
    if !kinds.iter().all(|kind| is_one_of(kind, &meaning["type"])) {
        return Err(format!("the type is {kind}, and names.json says {}", meaning["type"]));
    }
    let words = shape.get("enum").and_then(Value::as_array);
    let (Some(words), Some(allowed)) = (words, meaning.get("enum")) else { return Ok(()) };
    match words.iter().find(|word| !is_one_of(word, allowed)) {
        Some(word) => Err(format!("names.json does not have the word {word}")),
        None => Ok(()),
    }
}

/// True if the meaning of a name says this too.
fn says(meaning: &Value, key: &str, value: &Value) -> bool {
    let known = &meaning[key];
    match (known.as_array(), value.as_array()) {
        (Some(known), Some(words)) if key == "enum" => {
            known.len() == words.len() && words.iter().all(|word| known.contains(word))
        }
        // Bounds of numbers are said there alone.
        _ => {
            known == value
                || key == "additionalProperties" && known["type"] == value["type"] && known.is_object()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &Value) -> Result<Value, String> {
        let names = json!({
            "host": { "type": "string" },
            "state": { "type": "string", "enum": ["open", "closed"] },
            "budget": { "type": ["integer", "string"] },
        });
        Names(names.as_object().expect("an object").clone()).closed("x", schema)
    }

    fn with(name: &str, schema: &Value) -> Value {
        json!({ "type": "object", "properties": { name: schema }, "required": [name] })
    }

    #[test]
    fn a_name_refers_to_its_meaning_and_only_what_the_type_adds_is_written() {
        let property = |name: &str, schema: &Value| {
            let closed = check(&with(name, schema)).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(closed["additionalProperties"], false);
            closed["properties"][name].clone()
        };
        let host = json!({ "$ref": "names.json#/$defs/host" });
        assert_eq!(property("host", &json!({ "type": "string", "description": "Who." })), host);
        let or_null = json!({ "anyOf": [host, { "type": "null" }] });
        assert_eq!(property("host", &json!({ "type": ["string", "null"] })), or_null);
        let open = json!({ "$ref": "names.json#/$defs/state", "enum": ["open"] });
        assert_eq!(property("state", &json!({ "oneOf": [{ "const": "open", "type": "string" }] })), open);
        let number = json!({ "$ref": "names.json#/$defs/budget", "type": "integer" });
        assert_eq!(property("budget", &json!({ "type": "integer", "format": "uint32" })), number);
    }

    #[test]
    fn a_type_that_contradicts_the_meaning_of_a_name_is_refused() {
        for (name, schema) in [
            ("unheard", json!({ "type": "string" })),
            ("host", json!({ "type": "integer" })),
            ("state", json!({ "enum": ["ajar"], "type": "string" })),
            ("budget", json!({ "anyOf": [{ "type": "integer" }, { "type": "object" }] })),
        ] {
            assert!(check(&with(name, &schema)).is_err(), "{name}");
        }
    }
}
