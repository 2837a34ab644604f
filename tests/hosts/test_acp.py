"""Agents of the Agent Client Protocol as children: real processes with the SDK's own agent side."""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import Cancellation, ConfigError, Delegator, Report, Task
from delegate.policy.approvals import ApprovalRequest
from delegate.types import TaskResult
from tests.support.operator import *  # noqa: F403

pytest.importorskip("acp", reason="the extra `acp` isn't installed")

from delegate.child.acp import AcpRunner

AGENT = str(Path(__file__).parent.parent / "support" / "acp_agent.py")
Script = Sequence[Sequence[Any]]
