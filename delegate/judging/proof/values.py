"""Walks through JSON values: the arguments and the results of tool calls."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast


def parsed(output: str) -> Any:
    """An output as JSON; None if it is no object or list."""
    try:
        return json.loads(output) if output.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None


def leaves(value: Any) -> list[str]:
    """All keys, texts and numbers in a JSON value, as text."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return [text for key, part in fields.items() for text in (str(key), *leaves(part))]
    if isinstance(value, (list, tuple)):
        return [text for part in cast("Sequence[Any]", value) for text in leaves(part)]
    return [] if value is None else [str(value)]


def scalars(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All texts, numbers, true and false in a JSON value, each with the keys that lead to it."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, Any]", value).items():
            yield from scalars(part, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from scalars(part, path)
    elif value is not None:
        yield path, value


def texts(value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Only the texts."""
    return ((path, text) for path, text in scalars(value) if isinstance(text, str))


def records_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(value, Mapping):
        yield (fields := cast("Mapping[str, Any]", value))
        for part in fields.values():
            yield from records_in(part)
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from records_in(part)


def fields_in(value: Any) -> Iterator[tuple[str, Any]]:
    """All fields of all objects in a JSON value, those of an object before what follows it."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, Any]", value).items():
            yield str(key), part
            yield from fields_in(part)
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from fields_in(part)


def with_texts(value: Any, change: Callable[[tuple[str, ...], str], Any], path: tuple[str, ...] = ()) -> Any:
    """The value with each text in it as `change` has it, which gets the keys that lead to it."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: with_texts(part, change, (*path, str(key))) for key, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [with_texts(part, change, path) for part in cast("Sequence[Any]", value)]
    return change(path, value) if isinstance(value, str) else value
