"""The OpenAPI document of the server, from the models of what is sent and answered."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from inspect import getdoc
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from delegate._util import resources
from delegate.hosts.serve.operations import OPERATIONS, Operation
from delegate.types import ErrorDetail

Json = dict[str, Any]
Schemas = Mapping[tuple[str, JsonSchemaMode], Json]
"""By the id of an operation: of its body (validation), and of its answer."""
_DONE: Json = {"204": {"description": "It is done."}}


@cache
def document() -> Json:
    """The whole document."""
    modes: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        *((one.id, "validation", TypeAdapter(one.body)) for one in OPERATIONS if one.body),
        *((one.id, "serialization", TypeAdapter(one.answers)) for one in OPERATIONS if one.answers),
        ("Error", "serialization", TypeAdapter(ErrorDetail)),
    ]
    schemas, defined = TypeAdapter.json_schemas(modes, ref_template="#/components/schemas/{model}")
    definitions: Json = defined["$defs"]
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
        "paths": _paths(schemas),
    }


def _paths(schemas: Schemas) -> Json:
    paths: Json = {}
    for one in OPERATIONS:
        verb, path = one.path.split()
        paths.setdefault(path, {})[verb.lower()] = _operation(one, schemas)
    responses = paths["/v1/calls"]["post"]["responses"]
    responses["202"] = {**responses["200"], "description": "Its tasks still run."}
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


def _operation(one: Operation, schemas: Schemas) -> Json:
    failed = {"description": "It was refused.", "content": _json(_ref("Error"))}
    done = {"200": _content(_one_of(schemas[one.id, "serialization"]))} if one.answers else _DONE
    operation: Json = {
        "operationId": one.id,
        "summary": (getdoc(one.run) or "").partition("\n\n")[0],
        "responses": {
            **({} if one.is_stream else done),
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
    if one.body:
        operation["requestBody"] = {"required": True, "content": _json(_one_of(schemas[one.id, "validation"]))}
    return operation


def _one_of(schema: Json) -> Json:
    """The schema, whose forms exclude each other if there are several."""
    return {"oneOf": schema["anyOf"]} if "anyOf" in schema else schema


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
