"""The operations of `delegate serve` and `delegate rpc`: one table, from which both answer and the document is made."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from inspect import signature
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from delegate._util.documents import unique_keys
from delegate.engine.error_mapping import error_detail
from delegate.hosts.serve.scoring import ScoreRequest, WireError
from delegate.hosts.serve.service import JudgeRequest, Request, Service, parse
from delegate.types import ErrorDetail, JsonObject
from delegate.types.errors import CallError, DelegateError


class _Names(Request):
    """A base of models that no source has: to look for the docs of their fields is to look through every module."""

    model_config = ConfigDict(use_attribute_docstrings=False)


class Operation:
    """What a client can ask for: a method of `Service`, whose parameters and docs describe it.

    Its `body` is the body over HTTP. Its other `names` are in the path and the query.
    """

    def __init__(self, method: str, id: str, path: str, run: Callable[..., Any], forms: Any = None) -> None:
        """`method` is its name on stdin, `id` the one in the OpenAPI document, `path` its verb and path over HTTP.

        `forms` are those of a body that `run` reads itself.
        """
        self.method, self.id, self.path, self.run = method, id, path, run
        described = signature(run)
        _self, _client, *parameters = described.parameters.values()
        self.is_stream = get_origin(described.return_annotation) is AsyncGenerator
        self.answers: Any = None if self.is_stream else described.return_annotation
        self.body: Any = forms or next((one.annotation for one in parameters if one.name == "body"), None)
        fields: dict[str, Any] = {
            one.name: (one.annotation, ... if one.default is one.empty else one.default)
            for one in parameters
            if one.name != "body"
        }
        self.names: type[BaseModel] = create_model("Names", __base__=_Names, **fields)

    def answer(self, service: Service, client: str, names: object, body: object = None) -> Awaitable[Any]:
        """What answers a client, or its events. Raises CallError for what is wrong with what it sent."""
        known = dict(parse(self.names, names))
        if self.body is not None:
            known["body"] = body if get_args(self.body) else parse(self.body, body)
        return self.run(service, client, **known)


ANSWER = TypeAdapter[Any](Any)
"""Serializes what answers an operation."""
_TASK = "/v1/tasks/{handle}"
OPERATIONS = (
    Operation("call", "call", "POST /v1/calls", Service.call),
    Operation("read", "readTask", f"GET {_TASK}", Service.read),
    Operation("stop", "stopTask", f"POST {_TASK}/stop", Service.stop),
    Operation("message", "message", f"POST {_TASK}/messages", Service.message),
    Operation("messages", "listMessages", f"GET {_TASK}/messages", Service.messages),
    Operation("events", "events", f"GET {_TASK}/events", Service.events),
    Operation("judge", "judge", "POST /v1/judge", Service.judge, JudgeRequest | ScoreRequest),
    Operation("listRubrics", "listRubrics", "GET /v1/rubrics", Service.rubrics),
    Operation("approvals", "listApprovals", "GET /v1/approvals", Service.approvals),
    Operation("approve", "approve", "POST /v1/approvals/{sha256}", Service.approve),
    Operation("version", "version", "GET /v1/version", Service.version),
)


def parse_json(text: str | bytes, what: str) -> Any:
    """The JSON in a text. Raises CallError, which says that `what` isn't valid."""
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        hint = "send a JSON object"
        raise CallError("invalid_json", f"the {what} is not valid JSON: {error}", hint=hint) from None


def error_body(error: DelegateError) -> JsonObject:
    """How a client is told of an error."""
    if isinstance(error, WireError):
        return error.body
    is_call = isinstance(error, CallError)
    detail = error_detail(error) if is_call else ErrorDetail(code="config_error", message=str(error))
    return {"error": detail.model_dump(mode="json")}
