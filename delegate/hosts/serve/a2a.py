"""Serves delegate over the Agent2Agent protocol (A2A): a message is a task, and its verdict is part of the result.

A task's id is its handle, and what is answered comes from the records: also after a restart. Needs the extra `a2a`.
"""

import logging
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, NoReturn, cast

from a2a.server.context import ServerCallContext
from a2a.server.events import Event as Update
from a2a.server.request_handlers.request_handler import (
    RequestHandler,
    validate_request_params,  # pyright: ignore[reportUnknownVariableType]
)
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.types import a2a_pb2 as types
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import validate_history_length, validate_page_size
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from starlette.routing import Route

from delegate import contract
from delegate._util.fencing import one_line
from delegate.contract.brief import criteria_in
from delegate.hosts.progress import line
from delegate.hosts.serve.service import CallRequest, MessageRequest, Service, TaskState, TooMany, parse
from delegate.hosts.stream import steps
from delegate.types import TaskResult
from delegate.types.errors import CallError, DelegateError
from delegate.types.events import EventSink

RPC_PATH = "/a2a"
_MODES = ("text/plain", "application/json")
_ENDED = (types.TASK_STATE_COMPLETED, types.TASK_STATE_FAILED, types.TASK_STATE_CANCELED)
_STATUS_CHARS = 2_000

logging.getLogger("a2a").addHandler(logging.NullHandler())  # without one, each wrong request is a traceback on stderr


def routes(service: Service, url: str, version: str) -> list[Route]:
    """The routes of the agent card and of JSON-RPC. `url` is what the server is reached at, without a path."""
    handler = _Handler(service)
    rpc = create_jsonrpc_routes(handler, RPC_PATH, enable_v0_3_compat=True)
    return [*create_agent_card_routes(_card(url, version)), *rpc]


def _card(url: str, version: str) -> types.AgentCard:
    skill = types.AgentSkill(
        id="do_and_prove",
        name="Do this and prove it",
        description=(
            "Gives a task to a child agent, and judges its work by your acceptance criteria: a list below a line "
            "`Acceptance criteria`, or `acceptance_criteria` in a data part. The result has a verdict, PASS or FAIL, "
            "with the evidence for each criterion. A FAIL ends as failed."
        ),
        tags=["delegation", "verification", "acceptance criteria"],
        examples=["Write haiku.txt about a river.\n\nAcceptance criteria:\n- file: haiku.txt"],
    )
    bearer = types.HTTPAuthSecurityScheme(scheme="bearer")
    return types.AgentCard(
        name="delegate",
        description="Does tasks with child agents, and says with evidence whether they are done.",
        version=version,
        supported_interfaces=[
            types.AgentInterface(url=f"{url}{RPC_PATH}", protocol_binding="JSONRPC", protocol_version=protocol)
            for protocol in ("1.0", "0.3")
        ],
        capabilities=types.AgentCapabilities(streaming=True),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=[skill],
        security_schemes={"bearer": types.SecurityScheme(http_auth_security_scheme=bearer)},
        security_requirements=[types.SecurityRequirement(schemes={"bearer": types.StringList()})],
    )


class _Handler(RequestHandler):
    """One method per operation of the protocol."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @validate_request_params
    async def on_message_send(self, params: types.SendMessageRequest, context: ServerCallContext) -> types.Task:
        validate_history_length(params.configuration)
        client, handle = context.user.user_name, await self._take(params.message, context)
        delegation = self._service.delegation(client, handle)
        if delegation is not None and not params.configuration.return_immediately:
            await delegation.wait(handle=handle, or_question=True)
        return await self._task(client, handle)

    @validate_request_params
    async def on_message_send_stream(
        self, params: types.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        since, handle = time.time(), await self._take(params.message, context)
        async for update in self._updates(context.user.user_name, handle, since):
            yield update

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: types.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        if (await self._task(context.user.user_name, params.id)).status.state in _ENDED:
            raise UnsupportedOperationError("the task has ended; get it")
        async for update in self._updates(context.user.user_name, params.id, time.time()):
            yield update

    @validate_request_params
    async def on_get_task(self, params: types.GetTaskRequest, context: ServerCallContext) -> types.Task:
        validate_history_length(params)
        return await self._task(context.user.user_name, params.id)

    @validate_request_params
    async def on_list_tasks(
        self, params: types.ListTasksRequest, context: ServerCallContext
    ) -> types.ListTasksResponse:
        validate_history_length(params)
        size = params.page_size if params.HasField("page_size") else DEFAULT_LIST_TASKS_PAGE_SIZE
        validate_page_size(size)
        if params.page_token and not params.page_token.isdecimal():
            raise InvalidParamsError("the page token is none of this server")
        client, start = context.user.user_name, int(params.page_token[:9] or 0)
        with _errors():
            handles = await self._service.handles(client)
        after = params.status_timestamp_after.ToDatetime()
        found: list[types.Task] = []
        for handle in handles:
            if params.context_id not in ("", self._service.context_of(client, handle)):
                continue
            task = await self._task(client, handle)
            if (
                params.status in (types.TASK_STATE_UNSPECIFIED, task.status.state)
                and task.status.timestamp.ToDatetime() >= after
            ):
                if not params.include_artifacts:
                    task.ClearField("artifacts")
                found.append(task)
        end = start + size
        return types.ListTasksResponse(
            tasks=found[start:end],
            next_page_token=str(end) if end < len(found) else "",
            page_size=size,
            total_size=len(found),
        )

    @validate_request_params
    async def on_cancel_task(self, params: types.CancelTaskRequest, context: ServerCallContext) -> types.Task:
        client = context.user.user_name
        if (await self._task(client, params.id)).status.state in _ENDED:
            raise TaskNotCancelableError
        with _errors():
            await self._service.stop(client, params.id)
        return await self._task(client, params.id)

    async def _take(self, message: types.Message, context: ServerCallContext) -> str:
        """The handle of the task that a message begins, continues, or is sent to the child of."""
        client = context.user.user_name
        if message.task_id:
            task = await self._task(client, message.task_id)
            if message.context_id not in ("", task.context_id):
                raise InvalidParamsError(f"task {task.id} belongs to another context")
            if task.status.state in _ENDED:
                hint = "to continue it, send a message without taskId, and with its id in referenceTaskIds"
                raise UnsupportedOperationError(f"the task has ended; {hint}")
        call = _call_in(message)
        with _errors():
            handle = message.task_id or next(iter(message.reference_task_ids), None)
            if handle is not None:
                return await self._send(client, handle, call)
            parent = {"run_id": message.context_id or None}
            state = await self._service.call(client, parse(CallRequest, {"call": call, "parent": parent, "asks": True}))
        if not state.handles:
            raise InternalError("the task is not on record, so nothing can be said about it")
        return state.handles[0]

    async def _send(self, client: str, handle: str, call: Mapping[str, Any]) -> str:
        """Send a message to a child, or continue a task that has ended. The handle of the task that has it."""
        if others := sorted(call.keys() - {"goal", "acceptance_criteria"}):
            raise InvalidParamsError(f"a message to a task can't have {others[0]}")
        criteria = call.get("acceptance_criteria")
        sent = parse(MessageRequest, {"text": call.get("goal", ""), "acceptance_criteria": criteria, "asks": True})
        return (await self._service.message(client, handle, sent)).handle

    async def _updates(self, client: str, handle: str, since: float) -> AsyncGenerator[Update]:
        """The task, what it does from `since` on, and its end, or what its child asks."""
        task = await self._task(client, handle)
        delegation = self._service.delegation(client, handle)
        yield types.Task(id=task.id, context_id=task.context_id, status=_status(types.TASK_STATE_WORKING))
        if delegation is not None:

            async def until_end(report: EventSink) -> bool:
                with delegation.reported_to(report):
                    return await delegation.wait(handle=handle, or_question=True)

            async with aclosing(steps(until_end)) as stream:
                async for event in stream:
                    if not isinstance(event, bool) and event.handle == handle and event.at >= since:
                        status = _status(types.TASK_STATE_WORKING, line(event))
                        yield types.TaskStatusUpdateEvent(task_id=handle, context_id=task.context_id, status=status)
            task = await self._task(client, handle)
        for artifact in task.artifacts:
            yield types.TaskArtifactUpdateEvent(
                task_id=handle, context_id=task.context_id, artifact=artifact, last_chunk=True
            )
        yield types.TaskStatusUpdateEvent(task_id=handle, context_id=task.context_id, status=task.status)

    async def _task(self, client: str, handle: str) -> types.Task:
        """A task as the protocol has it. Raises TaskNotFoundError for one that isn't this client's."""
        try:
            state = await self._service.read(client, handle)
        except CallError as error:
            if error.code not in ("running", "outcome_unknown"):
                with _errors():
                    raise
            word = types.TASK_STATE_WORKING if error.code == "running" else types.TASK_STATE_FAILED
            status, artifacts = _status(word, error.message), list[types.Artifact]()
        else:
            status, artifacts = _status_of(state), _artifacts(state.result)
        context = self._service.context_of(client, handle)
        return types.Task(id=handle, context_id=context, status=status, artifacts=artifacts)

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise ExtendedAgentCardNotConfiguredError

    async def _no_push(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise PushNotificationNotSupportedError

    on_create_task_push_notification_config = _no_push
    on_get_task_push_notification_config = _no_push
    on_list_task_push_notification_configs = _no_push
    on_delete_task_push_notification_config = _no_push


def _call_in(message: types.Message) -> dict[str, Any]:
    """The arguments of delegate_task in a message. Raises A2AError.

    Its text is the goal and may list criteria; data parts have the other fields.
    """
    call: dict[str, Any] = {}
    texts: list[str] = []
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "data":
                fields: Any = MessageToDict(part.data)  # of a Value: any JSON
                if not isinstance(fields, dict):
                    raise InvalidParamsError("a data part should be an object with fields of delegate_task")
                call |= cast("dict[str, Any]", fields)
            case _:
                raise ContentTypeNotSupportedError("send the task as text, and fields of delegate_task as data")
    if "tasks" in call:
        raise InvalidParamsError("a message is one task; send a message for each")
    text = "\n".join(texts)
    if text.strip():
        if "goal" in call:
            raise InvalidParamsError("the goal is the text or in the data, and not both; send `context` as data")
        call["goal"] = text
        if criteria := list(criteria_in(text)):
            given: Any = call.get("acceptance_criteria") or []
            call["acceptance_criteria"] = criteria + (given if isinstance(given, list) else [given])
    return call


def _status_of(state: TaskState) -> types.TaskStatus:
    if state.question is not None:
        options = (f"{n}. {one_line(option, 300)}" for n, option in enumerate(state.question.options, start=1))
        return _status(types.TASK_STATE_INPUT_REQUIRED, "\n".join([state.question.text, *options]))
    if state.result is None:
        return _status(types.TASK_STATE_WORKING)
    if state.result.status == "cancelled":
        return _status(types.TASK_STATE_CANCELED, str(state.result))
    return _status(types.TASK_STATE_COMPLETED if state.result.good else types.TASK_STATE_FAILED, str(state.result))


def _status(state: types.TaskState, text: str = "") -> types.TaskStatus:
    status = types.TaskStatus(state=state)
    status.timestamp.GetCurrentTime()
    if text:
        parts = [types.Part(text=text[:_STATUS_CHARS], media_type=_MODES[0])]
        status.message.CopyFrom(types.Message(message_id="status", role=types.ROLE_AGENT, parts=parts))
    return status


def _artifacts(result: TaskResult | None) -> list[types.Artifact]:
    """The result as a calling model should read it, with the verdict first, and as data."""
    if result is None:
        return []
    text = contract.render_result(result, limit=len(result.report))
    data = ParseDict(result.model_dump(mode="json"), Value())
    parts = [types.Part(text=text, media_type=_MODES[0]), types.Part(data=data, media_type=_MODES[1])]
    about = "The verdict with its evidence, the report, and both as data: see schemas/run_result.json."
    return [types.Artifact(artifact_id="result", name="result", description=about, parts=parts)]


@contextmanager
def _errors() -> Generator[None]:
    """Raise errors of delegate in the block as those of the protocol."""
    try:
        yield
    except TooMany as error:
        raise InternalError(str(error), {"code": str(error.code), "hint": error.hint or ""}) from None
    except CallError as error:
        if error.code == "unknown_handle":
            raise TaskNotFoundError from None
        text = f"{error.message} ({error.hint})" if error.hint else error.message
        data = {"code": str(error.code), "field": error.field or "", "hint": error.hint or ""}
        raise InvalidParamsError(text, data) from None
    except DelegateError as error:
        raise InternalError(str(error)) from None
