//! The description of the API, from the routes and from the types of the answers. It becomes `openapi.json`.

use super::health::{HealthView, IncidentsView};
use super::routes::{Answer, Kind, Parameter, Route, routes};
use fleet::views::HostOrder;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// Returns the description in OpenAPI 3.1.
pub fn api_description() -> Value {
    let paths = routes().into_iter().map(|route| (route.path.to_owned(), path(&route)));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "orchestrate-observer",
            "version": "1",
            "description": "The fleet as one process sees it that follows the whole store. Every answer is the \
                JSON that the command prints with `-o json` at the revision that it names. Nothing can be changed here.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8590" }],
        "security": [{ "token": [] }, { "cookie": [] }],
        "paths": paths.collect::<Map<String, Value>>(),
        "components": {
            "securitySchemes": security_schemes(),
            "parameters": { "At": at() },
            "headers": { "Age": age() },
            "responses": refusals(),
            "schemas": {
                "Health": schema::<HealthView>(),
                "Incidents": schema::<IncidentsView>(),
                "Past": {
                    "description": "What an answer to a request with `at` is.",
                    "$ref": "schema/past.json",
                },
            },
        },
    })
}

fn path(Route { id, summary, parameters, answer, .. }: &Route) -> Value {
    let mut operation = json!({ "operationId": id, "summary": summary, "responses": responses(answer) });
    let mut parameters: Vec<Value> = parameters.iter().map(parameter).collect();
    if let Answer::View { .. } = answer {
        parameters.push(json!({ "$ref": "#/components/parameters/At" }));
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Answer::Cookie = answer {
        operation["requestBody"] = sign_in_form();
        return json!({ "post": operation });
    }
    json!({ "get": operation })
}

fn parameter(Parameter { name, description, kind }: &Parameter) -> Value {
    let (place, schema) = match kind {
        Kind::OfPath(_) => ("path", json!({ "type": "string" })),
        Kind::Text => ("query", json!({ "type": "string" })),
        Kind::Texts => ("query", json!({ "type": "array", "items": { "type": "string" } })),
        Kind::Flag => ("query", json!({ "type": "boolean" })),
        Kind::Column => {
            let columns = HostOrder::ALL.map(HostOrder::as_str);
            ("query", json!({ "enum": columns, "default": HostOrder::default().as_str() }))
        }
    };
    let mut parameter = json!({ "name": name, "in": place, "description": description, "schema": schema });
    match kind {
        Kind::OfPath(example) => {
            parameter["required"] = true.into();
            parameter["example"] = (*example).into();
        }
        Kind::Texts => parameter["explode"] = true.into(),
        _ => {}
    }
    parameter
}

/// Returns the answers of a route by their codes.
fn responses(answer: &Answer) -> Value {
    let mut all = refer(&[("401", "NoToken"), ("403", "OtherSite"), ("421", "ForeignName")]);
    let found = match answer {
        Answer::View { file, none } => {
            all.extend(refer(&[
                ("300", "SeveralHistories"),
                ("400", "BadRequest"),
                ("404", "NotRecorded"),
                ("500", "UnreadableRecording"),
                ("503", "NotReady"),
            ]));
            all.extend(none.map(|why| ("404".to_owned(), text(why))));
            with_age(json_answer("The answer.", &json!({ "$ref": format!("schema/{file}") })))
        }
        Answer::Incidents => {
            all.extend(refer(&[("400", "BadRequest"), ("503", "NotReady")]));
            with_age(json_answer("The answer.", &json!({ "$ref": "#/components/schemas/Incidents" })))
        }
        Answer::Health => {
            let health = json!({ "$ref": "#/components/schemas/Health" });
            all.extend(refer(&[("400", "BadRequest")]));
            let stale = json_answer("What is shown is stale, or nothing was read yet.", &health);
            all.insert("503".to_owned(), stale);
            json_answer("The answer.", &health)
        }
        Answer::Document { none } => {
            all.extend(refer(&[("400", "BadRequest")]));
            all.extend(none.map(|why| ("404".to_owned(), text(why))));
            json_answer("The answer.", &json!({ "type": "object" }))
        }
        Answer::Metrics => text("The answer."),
        Answer::Stream => {
            all.extend(refer(&[("400", "BadRequest")]));
            all.insert("503".to_owned(), text("As many clients follow the stream as may."));
            let events = "Events of the type health. While the id of an event stays the same, the store is shown at \
                the same revision.";
            content(events, "text/event-stream", &json!({ "type": "string" }))
        }
        Answer::Cookie => {
            all.insert("303".to_owned(), json!({ "description": "The same, after the form." }));
            all.insert("204".to_owned(), cookie());
            return Value::Object(all);
        }
    };
    all.insert("200".to_owned(), found);
    Value::Object(all)
}

fn refer(codes: &[(&str, &str)]) -> Map<String, Value> {
    let refer = |(code, name): &(&str, &str)| {
        ((*code).to_owned(), json!({ "$ref": format!("#/components/responses/{name}") }))
    };
    codes.iter().map(refer).collect()
}

fn content(description: &str, media_type: &str, schema: &Value) -> Value {
    json!({ "description": description, "content": { media_type: { "schema": schema } } })
}

fn text(description: &str) -> Value {
    content(description, "text/plain", &json!({ "type": "string" }))
}

fn json_answer(description: &str, schema: &Value) -> Value {
    content(description, "application/json", schema)
}

fn with_age(mut answer: Value) -> Value {
    answer["headers"] = json!({ "Age": { "$ref": "#/components/headers/Age" } });
    answer
}

fn cookie() -> Value {
    json!({
        "description": "The cookie stands for the token for 12 hours.",
        "headers": { "Set-Cookie": { "schema": { "type": "string" } } },
    })
}

fn sign_in_form() -> Value {
    let to = "The address of this observer to which the answer leads; otherwise that of the first page.";
    let fields = json!({
        "type": "object",
        "properties": { "token": { "type": "string" }, "to": { "description": to, "type": "string" } },
    });
    let description = "The form of the page on which people sign in. Programs send the header instead.";
    content(description, "application/x-www-form-urlencoded", &fields)
}

fn security_schemes() -> Value {
    json!({
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "The word in the file of `http.token_file`, or a token whose digest is in the file of \
                `http.token_digests`.",
        },
        "cookie": {
            "type": "apiKey",
            "in": "cookie",
            "name": "orchestrate_session_<observer>",
            "description": "What `POST /v1/session` sets. The end of its name differs between observers.",
        },
    })
}

fn at() -> Value {
    json!({
        "name": "at",
        "in": "query",
        "description": "A moment of the past: a revision, a time (2026-11-27T02:14:00Z), a duration before now (2h), \
            or lineage/epoch/branch/revision. The answer is then {\"past\": …, \"answer\": …}, as schema/past.json \
            describes. Only an observer that records the store accepts it.",
        "schema": { "type": "string" },
    })
}

fn age() -> Value {
    json!({
        "description": "The time in whole seconds for which changes of the store may be missing in the answer. Absent \
            until a read of the store has confirmed that the answer is the present.",
        "schema": { "type": "integer", "minimum": 0 },
    })
}

/// Returns the answers that several routes have in common.
fn refusals() -> Value {
    json!({
        "BadRequest": text("A parameter is not known, or its value is not valid."),
        "NoToken": text("The token is missing or wrong."),
        "OtherSite": text("A page of another site asks."),
        "ForeignName": text("The Host header is not one of the observer's own names."),
        "NotReady": text("The store has not been read yet, or too much of other answers is still being read."),
        "NotRecorded": text("The moment of the past is not recorded."),
        "SeveralHistories": text(
            "The moment of the past belongs to several histories that differ, or may belong to one of which it is not \
            recorded. The answer names them."
        ),
        "UnreadableRecording": text("The recording cannot be read, or segments of it disagree."),
    })
}

/// Returns the schema of an answer that only the observer has. Its documentation describes the names.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.transforms = vec![Box::new(RecursiveTransform(close))];
    });
    let mut schema: Value = settings.into_generator().into_root_schema_for::<T>().into();
    schema.as_object_mut().map(|schema| schema.remove("title"));
    schema
}

/// Allows no other names in an object, and says nothing about how many bits a number has.
fn close(schema: &mut Schema) {
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema.remove("format");
}
