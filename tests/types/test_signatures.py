"""Plain functions as tools of a child: what a model is told of them, and what happens with the arguments it writes."""

import asyncio
import functools
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from delegate import ConfigError, Delegator, Task, Tool, ToolError
from delegate.testing import Scripted
from delegate.types.ports import ToolOutput


class Address(BaseModel):
    street: str
    zip: str = Field(description="Five digits.")


@dataclass
class Point:
    x: int
    y: int


def book(
    title: str,
    copies: Annotated[int, Field(ge=1)],
    binding: Literal["hard", "soft"] = "soft",
    to: Address | None = None,
    tags: list[str] = [],  # noqa: B006
    schema: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Order a book.

    It is sent the same day.

    Args:
        title: Its title, as printed.
        copies (int): How many.
        binding: What holds it together,
            which changes the price.

    Returns:
        The order.
    """
    street = to.street if to else None
    return {"title": title, "copies": copies, "binding": binding, "street": street, "tags": tags, "schema": schema}


async def output_of(tool: Tool, **arguments: Any) -> str:
    answer = await tool.call(arguments)
    assert isinstance(answer, str)
    return answer


def test_a_model_is_told_what_signature_and_docstring_say() -> None:
    tool = Tool.from_function(book)
    jsonschema.Draft202012Validator.check_schema(tool.parameters)
    properties = tool.parameters["properties"]
    assert tool.name == "book"
    assert tool.description == "Order a book.\n\nIt is sent the same day.\n\nReturns: The order."
    assert properties["title"] == {"type": "string", "description": "Its title, as printed."}
    assert properties["copies"] == {"type": "integer", "minimum": 1, "description": "How many."}
    assert properties["binding"] == {
        "type": "string",
        "enum": ["hard", "soft"],
        "default": "soft",
        "description": "What holds it together,\nwhich changes the price.",
    }
    assert tool.parameters["$defs"]["Address"]["properties"]["zip"]["description"] == "Five digits."
    assert (tool.parameters["required"], tool.parameters["additionalProperties"]) == (["title", "copies"], False)
    assert (tool.parallel, tool.read_only) == (True, False)


def numpy_style(part: str) -> int:
    """Count.

    Parameters
    ----------
    part : str
        The part's name.
    """
    return len(part)


def sphinx_style(part: str) -> int:
    """Count.

    :param part: The part's name.
    """
    return len(part)


def in_the_annotation(part: Annotated[str, Field(description="The part's name.")]) -> int:
    """Count.

    Args:
        part: Something else.
    """
    return len(part)


@pytest.mark.parametrize("function", [numpy_style, sphinx_style, in_the_annotation])
async def test_descriptions_are_read_in_every_style(function: Callable[..., Any]) -> None:
    tool = Tool.from_function(function)
    assert tool.description == "Count."
    assert tool.parameters["properties"]["part"]["description"] == "The part's name."
    assert await output_of(tool, part="bolt") == "4"


async def test_arguments_become_the_types_of_the_signature() -> None:
    given = {"title": "T", "copies": "2", "to": {"street": "Elm", "zip": "12345"}, "schema": {"a": 1}}
    assert json.loads(await output_of(Tool.from_function(book), **given)) == {
        "title": "T", "copies": 2, "binding": "soft", "street": "Elm", "tags": [], "schema": {"a": 1},
    }  # fmt: skip


async def test_null_stands_for_an_omitted_argument_where_null_is_no_value() -> None:
    order = json.loads(await output_of(Tool.from_function(book), title="T", copies=1, binding=None, tags=None, to=None))
    assert (order["binding"], order["tags"], order["street"]) == ("soft", [], None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"copies": 1}, "book needs the argument `title`"),
        ({"title": "T", "copies": 0}, "book, argument `copies`: Input should be greater than or equal to 1"),
        (
            {"title": "T", "copies": 1, "cover": 1},
            "book has no argument `cover`; use: title, copies, binding, to, tags, schema",
        ),
        ({"title": "T", "copies": 1, "to": {"zip": "1"}}, "book needs the argument `to.street`"),
    ],
)
async def test_a_wrong_argument_is_a_tool_error_that_names_it(arguments: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ToolError) as wrong:
        await Tool.from_function(book).call(arguments)
    assert str(wrong.value) == words


async def test_a_sync_function_runs_in_a_thread_and_an_async_one_on_the_loop() -> None:
    def sync() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def on_loop() -> bool:
        await asyncio.sleep(0)
        return sync()

    found = [await output_of(Tool.from_function(function)) for function in (sync, on_loop)]
    assert found == ["false", "true"]


class Shop:
    """Sells."""

    def price(self, part: str) -> float:
        """The price."""
        return 1.5

    async def __call__(self, part: str) -> str:
        """How many there are."""
        return f"12 {part}s"


async def test_methods_callable_objects_and_partials_are_functions_too() -> None:
    shop = Shop()
    assert await output_of(Tool.from_function(shop.price), part="bolt") == "1.5"
    called = Tool.from_function(shop, name="stock")
    assert (called.name, called.description) == ("stock", "How many there are.")
    assert await output_of(called, part="bolt") == "12 bolts"
    fixed = Tool.from_function(functools.partial(book, "T"))
    assert (fixed.name, next(iter(fixed.parameters["properties"]))) == ("book", "copies")


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("words", "words"),
        (None, "null"),
        (Point(1, 2), '{"x":1,"y":2}'),
        (Address(street="Elm", zip="1"), '{"street":"Elm","zip":"1"}'),
        ({3}, "[3]"),
        (ToolOutput("no", "denied"), ToolOutput("no", "denied")),
    ],
)
async def test_what_a_function_returns_is_text_or_json(returned: object, text: object) -> None:
    def function() -> object:
        return returned

    assert await Tool.from_function(function).call({}) == text


def test_a_default_that_is_no_json_is_not_shown_to_the_model() -> None:
    def function(part: str = object()) -> None:  # type: ignore[assignment] # pyright: ignore[reportArgumentType]
        """Works."""

    assert Tool.from_function(function).parameters["properties"] == {"part": {"type": "string"}}


def lists(*parts: str) -> None: ...
def anything(**options: str) -> None: ...
def positional(part: str, /) -> None: ...
def threads(part: threading.Thread) -> None: ...
def calls(part: str, back: Callable[[], int]) -> None: ...
def unknown(part: "Nowhere") -> None: ...  # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
async def streams() -> AsyncIterator[int]:
    yield 1


REFUSED: list[tuple[Any, list[str]]] = [
    (lists, ["lists", "*parts", "use a list"]),
    (anything, ["anything", "**options", "name each"]),
    (positional, ["positional", "part", "remove the `/`"]),
    (threads, ["threads", "parameter part", "Thread", "Pydantic model"]),
    (calls, ["calls", "parameter back", "JSON"]),
    (unknown, ["unknown", "Nowhere"]),
    (streams, ["streams", "generator", "list"]),
    (lambda: None, ["<lambda>", "name"]),
    (Shop, ["Shop", "not a function"]),
    (3, ["int", "not a function"]),
]


@pytest.mark.parametrize(
    ("function", "words"), REFUSED, ids=lambda value: getattr(value, "__name__", "") if callable(value) else ""
)
def test_a_function_that_a_model_cannot_call_is_refused(function: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        Delegator(tools=[function])
    assert [word for word in words if word not in str(refused.value)] == []


async def test_a_child_calls_plain_functions() -> None:
    def stock(part: str) -> int:
        """How many pieces of a part there are."""
        if part != "bolt":
            raise ToolError(f"there is no part {part!r}")
        return 12

    client = Scripted([Scripted.calls(("stock", {"part": "nut"}), ("stock", {"part": "bolt"})), "There are 12."])
    calls = [{"tool": "stock", "args": {"part": "bolt"}}]
    task = Task(goal="How many bolts?", acceptance_criteria=[{"kind": "receipt", "mode": "exactly", "calls": calls}])
    async with Delegator(client=client, tools=[stock]) as delegator:
        (result,) = (await delegator.run(task)).results
    assert result.verdict
    assert result.verdict.verdict == "PASS", result.verdict.reasoning
    assert [reply.is_error for reply in client.requests[1].messages[-1].tool_replies] == [True, False]
