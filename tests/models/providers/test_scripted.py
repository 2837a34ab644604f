"""The scripted model, as users' own tests rely on it."""

import asyncio

import pytest

from delegate.models.providers.scripted import Scripted
from delegate.types import Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, Message, ToolReply


def ask(*messages: Message) -> ChatRequest:
    return ChatRequest("test-model", "", messages or (Message("user", "say hello"),), max_output_tokens=99)


async def test_a_string_is_a_final_reply() -> None:
    reply = await Scripted(["hello"]).complete(ask())

    assert (reply.text, reply.stop, reply.tool_calls) == ("hello", "end", ())
    assert reply.model_served == "test-model"


async def test_replies_come_in_order_until_none_is_left() -> None:
    client = Scripted(["one", "two"])
    texts = [(await client.complete(ask())).text for _ in range(2)]

    assert texts == ["one", "two"]
    with pytest.raises(ProviderError, match="all 2 replies are used up") as caught:
        await client.complete(ask())
    assert caught.value.fault == "exhausted"


async def test_an_exception_in_the_list_is_raised_in_order() -> None:
    outage = ProviderError("overloaded", "busy", provider="scripted")
    client = Scripted([outage, "back again"])

    with pytest.raises(ProviderError) as caught:
        await client.complete(ask())
    assert caught.value is outage
    assert (await client.complete(ask())).text == "back again"


async def test_a_function_sees_the_request() -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        if request.messages[-1].role == "tool":
            return "done"
        return Scripted.call("write_file", path="a.txt", content="hi")

    client = Scripted(answer)
    first = await client.complete(ask())
    [call] = first.tool_calls
    tool = Message("tool", tool_replies=(ToolReply(call.id, call.name, "ok"),))

    assert (first.stop, call.name, call.arguments) == ("tool_calls", "write_file", {"path": "a.txt", "content": "hi"})
    assert (await client.complete(ask(Message("user", "x"), tool))).text == "done"


async def test_a_coroutine_function_may_wait_for_another_call() -> None:
    both_came = asyncio.Barrier(2)

    async def answer(request: ChatRequest) -> str:
        await both_came.wait()
        return request.messages[0].text

    client = Scripted(answer)
    replies = await asyncio.gather(*(client.complete(ask(Message("user", text))) for text in "ab"))

    assert [reply.text for reply in replies] == ["a", "b"]


async def test_several_calls_in_one_turn_have_ids_of_their_own() -> None:
    reply = await Scripted([Scripted.calls(("a", {}), ("b", {"x": 1}), text="both")]).complete(ask())

    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("a", {}), ("b", {"x": 1})]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert reply.text == "both"


async def test_a_tool_may_have_an_argument_called_name() -> None:
    assert Scripted.call("greet", name="you").tool_calls[0].arguments == {"name": "you"}


async def test_usage_is_estimated_where_none_is_given() -> None:
    given = ChatReply("x", "end", Usage(model_calls=1, input_tokens=3))
    client = Scripted(["four" * 10, given])

    estimated = await client.complete(ask(Message("user", "a" * 400)))
    assert estimated.usage == Usage(model_calls=1, input_tokens=100, output_tokens=10)
    assert (await client.complete(ask())).usage == given.usage


async def test_requests_are_kept_as_they_were() -> None:
    client = Scripted(["one", "two"])
    messages = [Message("user", "a")]
    await client.complete(ChatRequest("test-model", "sys", messages, max_output_tokens=99))
    messages.append(Message("assistant", "one"))
    await client.complete(ChatRequest("test-model", "sys", messages, max_output_tokens=99))

    assert [len(request.messages) for request in client.requests] == [1, 2]
