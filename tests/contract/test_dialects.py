"""The tool's definition in every dialect: the SDKs' own types accept it, and it stays short."""

import json
from collections.abc import Iterator
from typing import Any, cast, get_type_hints

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from delegate.contract import DIALECTS, Dialect, Limits, Variant, message_tool, parse_call, stop_tool, think_tool, tool
from delegate.contract.problems import KINDS, kind_fields
from delegate.judging.checks.json_schema import check_schema
from delegate.types.errors import ConfigError

BUSY = Limits(max_tasks=3, max_steps=50, timeout_seconds=600, tasks_left=17, usd_left=12.5, depth_left=1)
STRICT: tuple[Dialect, ...] = ("openai-strict", "openai-responses-strict")
VARIANTS: tuple[Variant, ...] = ("compact", "full")
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)

Json = dict[str, Any]


def parts(definition: Json) -> tuple[str, str, Json]:
    """Return name, description and parameters from any envelope."""
    inner = definition.get("function", definition)
    keys = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
    return inner["name"], inner["description"], next(inner[key] for key in keys if key in inner)


def schemas(schema: Json, level: int = 0) -> Iterator[tuple[int, Json]]:
    """Yield every subschema with its nesting depth."""
    yield level, schema
    for part in schema.get("properties", {}).values():
        yield from schemas(part, level + 1)
    if "items" in schema:
        yield from schemas(schema["items"], level + 1)
    for part in schema.get("anyOf", []):
        yield from schemas(part, level)


def tokens(definition: Json) -> float:
    name, description, parameters = parts(definition)
    fields = {"name": name, "description": description, "parameters": parameters}
    return len(json.dumps(fields, separators=(",", ":"), ensure_ascii=False)) / 4.2


# --------------------------------------------------------------------------------------------- the SDKs' own types


def fits_typed_dict(typed_dict: Any, value: Json) -> None:
    TypeAdapter(typed_dict).validate_python(value)
    assert value.keys() <= get_type_hints(typed_dict).keys()


@every_variant
@pytest.mark.parametrize("dialect", ["openai", "openai-strict"])
def test_the_openai_sdk_takes_it_as_a_chat_tool(dialect: Dialect, variant: Variant) -> None:
    from openai.types.chat import ChatCompletionFunctionToolParam
    from openai.types.shared_params import FunctionDefinition

    definition = tool(dialect, variant=variant)
    fits_typed_dict(ChatCompletionFunctionToolParam, definition)
    fits_typed_dict(FunctionDefinition, definition["function"])


@every_variant
@pytest.mark.parametrize("dialect", ["openai-responses", "openai-responses-strict"])
def test_the_openai_sdk_takes_it_as_a_responses_tool(dialect: Dialect, variant: Variant) -> None:
    from openai.types.responses import FunctionToolParam

    fits_typed_dict(FunctionToolParam, tool(dialect, variant=variant))


@every_variant
def test_the_anthropic_sdk_takes_it(variant: Variant) -> None:
    from anthropic.types import ToolParam

    fits_typed_dict(ToolParam, tool("anthropic", variant=variant))


@every_variant
def test_the_google_sdk_takes_it(variant: Variant) -> None:
    from google.genai import types

    definition = tool("gemini", variant=variant)
    declaration = types.FunctionDeclaration.model_validate(definition)
    sent = types.Tool(function_declarations=[declaration]).model_dump(by_alias=True, exclude_none=True)
    assert sent["functionDeclarations"] == [definition]


@every_variant
def test_the_mcp_sdk_takes_it(variant: Variant) -> None:
    types = pytest.importorskip("mcp.types")
    taken = types.Tool.model_validate(tool("mcp", variant=variant))
    assert taken.annotations.readOnlyHint is False


# ---------------------------------------------------------------------------------- what constrained decoding takes


@every_variant
@pytest.mark.parametrize("dialect", STRICT)
def test_strict_dialects_keep_to_the_strict_subset(dialect: Dialect, variant: Variant) -> None:
    definition = tool(dialect, variant=variant)
    assert (definition.get("function") or definition)["strict"] is True
    parameters = parts(definition)[2]
    assert parameters["type"] == "object"
    found = list(schemas(parameters))
    for level, schema in found:
        assert level <= 10
        assert schema.keys() <= {
            "type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems", "enum",
            "anyOf", "description",
        }  # fmt: skip
        assert "type" in schema or "anyOf" in schema
        if "object" in schema.get("type", ()):
            assert schema["required"] == list(schema["properties"])
            assert schema["additionalProperties"] is False
    assert "anyOf" not in parameters
    assert sum(len(schema.get("properties", ())) for _, schema in found) <= 5000
    assert sum(len(schema.get("enum", ())) for _, schema in found) <= 1000
    assert len(json.dumps(parameters)) <= 120_000


@every_variant
@pytest.mark.parametrize("dialect", STRICT)
def test_what_strict_decoding_has_to_fill_in_may_be_null(dialect: Dialect, variant: Variant) -> None:
    parameters = parts(tool(dialect, variant=variant))[2]
    nothing = dict.fromkeys(parameters["properties"])
    no_task = dict.fromkeys(parameters["properties"]["tasks"]["items"]["properties"])
    call = {**nothing, "tasks": [{**no_task, "goal": "g"}]}
    validator: Any = Draft202012Validator(parameters)
    validator.validate(call)
    assert parse_call(call, check_schema=check_schema)[0].goal == "g"


@every_variant
def test_gemini_is_given_one_type_for_each_schema_and_no_null(variant: Variant) -> None:
    known = {"type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems", "enum", "anyOf", "description"}  # fmt: skip  # noqa: E501
    for _, schema in schemas(parts(tool("gemini", variant=variant))[2]):
        assert schema.keys() <= known
        assert isinstance(schema.get("type", ""), str)
        assert None not in schema.get("enum", ())


@every_dialect
@every_variant
def test_every_form_is_a_closed_object_without_references(dialect: Dialect, variant: Variant) -> None:
    parameters = parts(tool(dialect, variant=variant))[2]
    Draft202012Validator.check_schema(parameters)
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["tasks"]["items"]["additionalProperties"] is False
    assert not {"oneOf", "anyOf", "allOf", "$defs"} & parameters.keys()
    assert "$ref" not in json.dumps(parameters)


# -------------------------------------------------------------------------------------------------- what a model reads


@pytest.mark.parametrize("dialect", ["openai", "openai-responses", "anthropic", "gemini", "mcp"])
def test_the_tool_costs_at_most_450_tokens_with_all_limits_filled_in(dialect: Dialect) -> None:
    assert tokens(tool(dialect, limits=BUSY)) <= 450


def test_for_calls_in_the_background_it_costs_30_tokens_more() -> None:
    with_it, without = tool("mcp", limits=BUSY, background=True), tool("mcp", limits=BUSY)
    assert "background" in parts(with_it)[2]["properties"]
    assert "background" not in parts(without)[2]["properties"]
    assert tokens(with_it) <= tokens(without) + 40


def test_no_schema_has_several_types_but_null() -> None:
    """Validators that Gemini CLI and Qwen Code use warn of others in the user's terminal."""
    for variant in VARIANTS:
        for _, schema in schemas(parts(tool("mcp", variant=variant, background=True))[2]):
            types = schema.get("type", [])
            assert isinstance(types, str) or len([name for name in types if name != "null"]) <= 1


@pytest.mark.parametrize("dialect", ["openai", "openai-responses", "anthropic", "gemini", "mcp"])
def test_the_full_variant_costs_at_most_1000_tokens(dialect: Dialect) -> None:
    assert tokens(tool(dialect, variant="full", limits=BUSY)) <= 1000


@every_dialect
def test_the_current_limits_are_in_the_description(dialect: Dialect) -> None:
    _, description, parameters = parts(tool(dialect, limits=Limits(max_tasks=2, max_steps=40, usd_left=0.5)))
    assert description.endswith("Limits: 2 tasks per call, 40 steps each; $0.50 left.")
    assert parameters["properties"]["tasks"]["maxItems"] == 2
    assert "{limits}" not in parts(tool(dialect))[1]


def test_a_run_without_tasks_left_says_so() -> None:
    assert "do the work yourself" in parts(tool("mcp", limits=Limits(tasks_left=0)))[1]


def test_the_full_variant_has_every_kind_of_criterion_of_the_parser() -> None:
    parameters = parts(tool("openai", variant="full"))[2]
    offered: dict[str, set[str]] = {}
    for option in parameters["properties"]["acceptance_criteria"]["items"]["anyOf"][1:]:
        kind = option["properties"]["kind"]
        for name in kind.get("enum") or [kind["const"]]:
            offered[name] = set(option["properties"])
    assert offered.keys() == KINDS.keys()
    for name, fields in offered.items():
        assert fields <= set(kind_fields(KINDS[name]))


@every_dialect
def test_the_name_is_a_setting(dialect: Dialect) -> None:
    assert parts(tool(dialect, name="hand_over-2"))[0] == "hand_over-2"


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "tool.name", "né", "a\n"])
def test_a_name_that_no_host_would_take_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        tool("openai", name=name)


def test_an_unknown_dialect_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="openai-responses-strict"):
        tool(cast("Any", "cohere"))


def test_each_definition_is_the_callers_own_to_change() -> None:
    tool("openai")["function"]["parameters"]["properties"].clear()
    assert "goal" in parts(tool("openai"))[2]["properties"]


def test_a_search_for_delegating_finds_nothing_before_the_tool() -> None:
    """Codex shows its model the three best hits for such words, and its search prefers short texts that have them."""
    for made in (stop_tool("mcp"), message_tool("mcp"), think_tool("mcp")):
        text = f"{made['title']} {made['description']}".lower()
        assert not [word for word in ("delegat", "task", "child", "agent") if word in text]
