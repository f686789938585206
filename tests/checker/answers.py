"""Validates answers of the command against the schemas in a directory.

Reads one question a line, {"schema": NAME, "answer": VALUE}, and writes one line for each: null if the answer
fits, or a text that says where it does not.
"""

import json
import pathlib
import sys

import jsonschema

directory = pathlib.Path(sys.argv[1])
schemas = {path.stem: json.loads(path.read_text()) for path in directory.glob("*.json")}
store = {f"names.json": schemas["names"]}


def validator(name):
    schema = schemas[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    resolver = jsonschema.RefResolver("", schema, store=store)
    formats = jsonschema.FormatChecker()
    return jsonschema.Draft202012Validator(schema, resolver=resolver, format_checker=formats)


validators = {}


def wrong(name, answer):
    if name not in schemas:
        return "there is no such schema"
    if name not in validators:
        validators[name] = validator(name)
    errors = sorted(validators[name].iter_errors(answer), key=lambda error: list(map(str, error.path)))
    if not errors:
        return None
    error = jsonschema.exceptions.best_match(errors)
    place = "/".join(map(str, error.absolute_path)) or "the answer"
    return f"{place}: {error.message}"


for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps(wrong(question["schema"], question["answer"])), flush=True)
