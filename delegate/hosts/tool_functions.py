"""The functions with which a framework's module creates its tools, where delegate_task needs nothing but settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, Unpack

from delegate.delegator import Delegator
from delegate.hosts.host_tool import HostTool, MakeTools, make_delegate_tool, small_tools
from delegate.policy.settings import SettingsOptions
from delegate.types import Parent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MakeDelegateTool(Generic[T]):
    """Creates delegate_task for an agent's tools. Without a delegator, one is created from `options` (settings).

    Raises:
        ConfigError: the settings are wrong.
    """

    wrap: Callable[[HostTool], T]
    """Makes a tool of the framework."""

    def __call__(
        self, delegator: Delegator | None = None, *, parent: Parent | None = None, **options: Unpack[SettingsOptions]
    ) -> T:
        return self.wrap(make_delegate_tool(delegator, parent=parent, **options))


def tool_functions(
    wrap: Callable[[HostTool], T],
) -> tuple[MakeDelegateTool[T], MakeTools[T], MakeTools[T], MakeTools[list[T]]]:
    """The functions `tool`, `read_tool`, `think_tool` and `follow_up_tools` of an adapter that wraps a tool by `wrap`.

    The first creates delegate_task, and the others what `small_tools` says.
    """
    return MakeDelegateTool(wrap), *small_tools(wrap)
