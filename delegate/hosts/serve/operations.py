"""The operations of `delegate serve` and `delegate rpc`: one table, from which both answer and the document is made."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import Field, TypeAdapter

from delegate.engine.error_mapping import error_detail
from delegate.hosts.serve.scoring import RubricList, ScoreRequest, ScoreResult, WireError
from delegate.hosts.serve.service import (
    MAX_WAIT_SECONDS,
    ApprovalReply,
    CallRequest,
    CallState,
    JudgeRequest,
    MessageRequest,
    PendingApproval,
    Request,
    Service,
    TaskState,
    Version,
    parse,
)
from delegate.types import ErrorDetail, JsonObject, SentMessage, Verdict
from delegate.types.errors import CallError, DelegateError


class HandleRequest(Request):
    """Names a task."""

    handle: str


class ReadRequest(HandleRequest):
    """Names a task to wait for."""

    wait_seconds: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS)


class ShaRequest(Request):
    """Names a call that waits for an approval."""

    sha256: str


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client can ask for."""

    method: str
    """Its name on stdin."""
    id: str
    """Its name in the OpenAPI document."""
    path: str
    """Its verb and path over HTTP."""
    run: Callable[..., Any]
    """The method of `Service` that answers it, given the client, the values of `names`, and the body. Its docs begin
    with what it does.
    """
    answers: tuple[Any, ...] = ()
    """The models of the answer; a list of one if it is one in a list."""
    names: type[Request] = Request
    """What is in the path and the query over HTTP."""
    bodies: tuple[Any, ...] = ()
    """The models of the body over HTTP. If there are several, `run` gets it as it is."""

    def answer(self, service: Service, client: str, names: object, body: object = None) -> Any:
        """What answers a client: to be awaited, or iterated for events. Raises CallError for what is wrong with it."""
        known = parse(self.names, names)
        sent = parse(self.bodies[0], body) if len(self.bodies) == 1 else body
        return self.run(service, client, *dict(known).values(), *([sent] if self.bodies else []))


ANSWER = TypeAdapter[Any](Any)
"""Serializes what answers an operation."""
_MESSAGES = "/v1/tasks/{handle}/messages"
OPERATIONS = (
    Operation("call", "call", "POST /v1/calls", Service.call, (CallState,), bodies=(CallRequest,)),
    Operation("read", "readTask", "GET /v1/tasks/{handle}", Service.read, (TaskState,), ReadRequest),
    Operation("stop", "stopTask", "POST /v1/tasks/{handle}/stop", Service.stop, (TaskState,), HandleRequest),
    Operation(
        "message",
        "message",
        f"POST {_MESSAGES}",
        Service.message,
        (SentMessage,),
        HandleRequest,
        (MessageRequest,),
    ),
    Operation("messages", "listMessages", f"GET {_MESSAGES}", Service.messages, ([SentMessage],), HandleRequest),
    Operation("events", "events", "GET /v1/tasks/{handle}/events", Service.events, names=HandleRequest),
    Operation(
        "judge", "judge", "POST /v1/judge", Service.judge, (Verdict, ScoreResult), bodies=(JudgeRequest, ScoreRequest)
    ),
    Operation("listRubrics", "listRubrics", "GET /v1/rubrics", Service.rubrics, (RubricList,)),
    Operation("approvals", "listApprovals", "GET /v1/approvals", Service.approvals, ([PendingApproval],)),
    Operation("approve", "approve", "POST /v1/approvals/{sha256}", Service.approve, (), ShaRequest, (ApprovalReply,)),
    Operation("version", "version", "GET /v1/version", Service.version, (Version,)),
)


def parse_json(text: str | bytes, what: str) -> Any:
    """The JSON in a text. Raises CallError, which says that `what` isn't valid."""
    try:
        return json.loads(text)
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
