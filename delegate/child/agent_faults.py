"""How an agent of the Agent Client Protocol fails."""

from delegate.codes import ChildCode


class AgentFault(Exception):
    """The agent didn't do what the protocol asks for, or reports that it couldn't."""

    def __init__(self, code: ChildCode, message: str) -> None:
        super().__init__(message)
        self.code: ChildCode = code


class AgentEnded(Exception):
    """The agent closed the connection."""
