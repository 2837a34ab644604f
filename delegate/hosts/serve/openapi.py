"""The OpenAPI document of the server, from the models of what is sent and answered."""

import json
from functools import cache
from importlib.metadata import version
from inspect import getdoc
from typing import Any, cast

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from delegate._util import resources
from delegate.hosts.serve.operations import OPERATIONS, Operation
from delegate.types import ErrorDetail

Json = dict[str, Any]


@cache
def document() -> Json:
    """The whole document."""
    models = [(one.bodies, one.answers) for one in OPERATIONS]
    modes: list[tuple[Any, JsonSchemaMode]] = [
        *((model, "validation") for bodies, _ in models for model in bodies),
        *((_item(model), "serialization") for _, answers in models for model in answers),
        (ErrorDetail, "serialization"),
    ]
    _, schemas = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    definitions: Json = schemas["$defs"]
    definitions["Error"] = {"type": "object", "required": ["error"], "properties": {"error": _ref("ErrorDetail")}}
    event = dict(resources.schema("event"))
    for name, part in {**event.pop("$defs"), "Event": event}.items():
        definitions.setdefault(name, json.loads(_moved(part)))
    for schema in definitions.values():
        for field in schema.get("properties", {}).values():
            field.pop("default", None)  # generators of clients take a field with a default for one that is always there
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "delegate",
            "version": version("delegate-task"),
            "description": "Hand work to other agents, and know whether the work was really done.",
        },
        "security": [{"token": []}],
        "components": {"schemas": definitions, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": _paths(),
    }


def _paths() -> Json:
    paths: Json = {}
    for one in OPERATIONS:
        verb, path = one.path.split()
        paths.setdefault(path, {})[verb.lower()] = _operation(one)
    responses = paths["/v1/calls"]["post"]["responses"]
    responses["202"] = {**responses["200"], "description": "Its tasks still run."}
    refused = _content({"oneOf": [_ref("Error"), _ref("CallState")]})
    responses["422"] = {**refused, "description": "The call was refused: by its form, or as its report says."}
    paths["/v1/tasks/{handle}/events"]["get"]["responses"]["200"] = {
        "description": "Server-sent events: the data of each is an event, and the last one is `end`.",
        "content": {"text/event-stream": {"schema": _ref("Event")}},
    }
    healthy: Json = {"type": "object", "properties": {"status": {"const": "ok"}}}
    for path, id, about, schema in (
        ("/openapi.json", "openapi", "This document.", {"type": "object"}),
        ("/healthz", "healthz", "Whether the server answers.", healthy),
    ):
        paths[path] = {
            "get": {"operationId": id, "summary": about, "responses": {"200": _content(schema)}, "security": []}
        }
    return paths


def _operation(one: Operation) -> Json:
    failed = {"description": "It was refused.", "content": _json(_ref("Error"))}
    done = {"200": _content(_any_of(one.answers))} if one.answers else {"204": {"description": "It is done."}}
    operation: Json = {
        "operationId": one.id,
        "summary": (getdoc(one.run) or "").partition("\n\n")[0],
        "responses": {
            **({} if one.method == "events" else done),
            **dict.fromkeys(("400", "401", "404", "405", "413", "421", "422", "429", "503"), failed),
        },
    }
    schema = one.names.model_json_schema()
    parameters = [
        {"name": name, "in": "path" if f"{{{name}}}" in one.path else "query", "schema": about}
        | ({"required": True} if name in schema["required"] else {})
        for name, about in schema["properties"].items()
    ]
    if parameters:
        operation["parameters"] = parameters
    if one.bodies:
        operation["requestBody"] = {"required": True, "content": _json(_any_of(one.bodies))}
    return operation


def _any_of(models: tuple[Any, ...]) -> Json:
    refs = [(isinstance(model, list), _ref(_item(model).__name__)) for model in models]
    schemas = [{"type": "array", "items": ref} if is_list else ref for is_list, ref in refs]
    return schemas[0] if len(schemas) == 1 else {"oneOf": schemas}


def _item(model: Any) -> Any:
    """The model of an answer, or of what is in its list."""
    return cast("list[Any]", model)[0] if isinstance(model, list) else model


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _content(schema: Json) -> Json:
    return {"description": "The answer.", "content": _json(schema)}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _moved(schema: Json) -> str:
    """A part of one of our schemas, with its references leading into this document."""
    kept = {key: value for key, value in schema.items() if not key.startswith("$") or key == "$ref"}
    return json.dumps(kept).replace("#/$defs/", "#/components/schemas/")
