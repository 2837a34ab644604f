"""The OpenAPI document of the server, from the models of what is sent and answered."""

import json
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from delegate._util import resources
from delegate.hosts.serve.scoring import RubricList, ScoreRequest, ScoreResult
from delegate.hosts.serve.service import (
    MAX_WAIT_SECONDS,
    ApprovalReply,
    CallRequest,
    CallState,
    JudgeRequest,
    MessageRequest,
    PendingApproval,
    TaskState,
    Version,
)
from delegate.records.mailbox import SentMessage
from delegate.types import ErrorDetail, Verdict

Json = dict[str, Any]

_SENT = (CallRequest, JudgeRequest, ScoreRequest, MessageRequest, ApprovalReply)
_ANSWERED = (CallState, TaskState, SentMessage, Verdict, PendingApproval, Version, ErrorDetail, ScoreResult, RubricList)
_HANDLE: Json = {"name": "handle", "in": "path", "required": True, "schema": {"type": "string"}}
_SHA256: Json = {**_HANDLE, "name": "sha256"}
_WAIT: Json = {
    "name": "wait_seconds",
    "in": "query",
    "schema": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "default": 0},
}


@cache
def document() -> Json:
    """The whole document."""
    modes: list[tuple[Any, JsonSchemaMode]] = [
        *((model, "validation") for model in _SENT),
        *((model, "serialization") for model in _ANSWERED),
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
    task = _operation("readTask", "Read a task, after waiting for it.", TaskState, parameters=[_HANDLE, _WAIT])
    called = _operation("call", "Call delegate_task. Its tasks run in the background.", CallState, CallRequest)
    called["responses"]["202"] = {**called["responses"]["200"], "description": "Its tasks still run."}
    called["responses"]["422"] = {
        "description": "The call was refused: by its form, or as its report says.",
        "content": {"application/json": {"schema": {"oneOf": [_ref("Error"), _ref("CallState")]}}},
    }
    answered = _operation("approve", "Answer a request for an approval.", None, ApprovalReply, parameters=[_SHA256])
    listed = _operation("listApprovals", "List the calls of children that wait for an approval.", None)
    listed["responses"]["200"] = _content({"type": "array", "items": _ref("PendingApproval")})
    told = _operation("listMessages", "What became of the messages to a child.", None, parameters=[_HANDLE])
    told["responses"]["200"] = _content({"type": "array", "items": _ref("SentMessage")})
    about = "Send a message to a child. A task that has ended continues."
    sent = _operation("message", about, SentMessage, MessageRequest, parameters=[_HANDLE])
    stream = _operation("events", "Follow the events of a task's call.", None, parameters=[_HANDLE])
    stream["responses"]["200"] = {
        "description": "Server-sent events: the data of each is an event, and the last one is `end`.",
        "content": {"text/event-stream": {"schema": _ref("Event")}},
    }
    judged = _operation("judge", "Judge existing work, or score a text on a rubric.", Verdict, JudgeRequest)
    judged["requestBody"]["content"] = _one_of(JudgeRequest, ScoreRequest)
    judged["responses"]["200"]["content"] = _one_of(Verdict, ScoreResult)
    document = _operation("openapi", "This document.", None)
    document["responses"]["200"] = _content({"type": "object"})
    healthy = _operation("healthz", "Whether the server answers.", None)
    healthy["responses"]["200"] = _content({"type": "object", "properties": {"status": {"const": "ok"}}})
    for free in (document, healthy):
        free["security"] = []
    return {
        "/v1/calls": {"post": called},
        "/v1/tasks/{handle}": {"get": task},
        "/v1/tasks/{handle}/stop": {
            "post": _operation("stopTask", "Stop a task, and wait until it has ended.", TaskState, parameters=[_HANDLE])
        },
        "/v1/tasks/{handle}/messages": {"get": told, "post": sent},
        "/v1/tasks/{handle}/events": {"get": stream},
        "/v1/judge": {"post": judged},
        "/v1/rubrics": {"get": _operation("listRubrics", "List the rubrics that are shipped.", RubricList)},
        "/v1/approvals": {"get": listed},
        "/v1/approvals/{sha256}": {"post": answered},
        "/v1/version": {"get": _operation("version", "What the server is.", Version)},
        "/openapi.json": {"get": document},
        "/healthz": {"get": healthy},
    }


def _operation(id: str, about: str, answer: Any, sent: Any = None, *, parameters: list[Json] | None = None) -> Json:
    failed = {"description": "It was refused.", "content": {"application/json": {"schema": _ref("Error")}}}
    operation: Json = {
        "operationId": id,
        "summary": about,
        "responses": {
            **({"200": _content(_ref(answer.__name__))} if answer else {"204": {"description": "It is done."}}),
            **dict.fromkeys(("400", "401", "404", "405", "413", "421", "422", "429", "503"), failed),
        },
    }
    if id in ("listApprovals", "listMessages", "events", "openapi", "healthz"):
        del operation["responses"]["204"]
    if parameters:
        operation["parameters"] = parameters
    if sent:
        schema = _ref(sent.__name__)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _one_of(*models: Any) -> Json:
    return {"application/json": {"schema": {"oneOf": [_ref(model.__name__) for model in models]}}}


def _content(schema: Json) -> Json:
    return {"description": "The answer.", "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _moved(schema: Json) -> str:
    """A part of one of our schemas, with its references leading into this document."""
    kept = {key: value for key, value in schema.items() if not key.startswith("$") or key == "$ref"}
    return json.dumps(kept).replace("#/$defs/", "#/components/schemas/")
