"""The names of everything that is emitted: OpenTelemetry's for generative AI, and our own under `delegate.`.

The conventions followed are those of open-telemetry/semantic-conventions-genai, version `VERSION`, which are still in
development: names may change in later versions, and then change here. OpenTelemetry's Python package of constants has
only names of an older version, so they are written out.
"""

from collections.abc import Mapping
from typing import Literal

VERSION = "0.1.0"
"""The version of the conventions. It builds on version 1.45.0 of OpenTelemetry's general ones."""
SCOPE = "delegate"
"""The instrumentation scope of all spans, events and metrics."""


Operation = Literal["invoke_workflow", "invoke_agent", "chat", "execute_tool"]

OPERATION = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
"""Also the name of a workflow since 0.1.0, which removed `gen_ai.workflow.name`."""
CONVERSATION = "gen_ai.conversation.id"
"""The handle of the task, whose record has the conversation."""
ERROR_TYPE = "error.type"

PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
OUTPUT_TYPE = "gen_ai.output.type"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"

PROVIDERS: Mapping[str, str] = {"openai": "openai", "anthropic": "anthropic", "google": "gcp.gen_ai"}
"""The names of providers by the API that a model uses. Others keep their own."""
REASONS: Mapping[str, str] = {"end": "stop", "tool_calls": "tool_call", "refusal": "content_filter"}
"""The finish reasons by our own stop reasons. Others keep their own."""


CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable with which an operator opts in to content: prompts, replies, arguments, results, reasons."""
CONTENT_IN_SPANS = frozenset({"true", "span_only", "span_and_event"})
CONTENT_IN_EVENTS = frozenset({"true", "event_only", "span_and_event"})

SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"


EVALUATION = "gen_ai.evaluation.result"
"""The event of one criterion's result, and of the verdict."""
EVALUATION_NAME = "gen_ai.evaluation.name"
SCORE_VALUE = "gen_ai.evaluation.score.value"
SCORE_LABEL = "gen_ai.evaluation.score.label"
EXPLANATION = "gen_ai.evaluation.explanation"


RUN_ID = "delegate.run.id"
TASKS = "delegate.tasks"
DEPTH = "delegate.depth"
TASK_INDEX = "delegate.task.index"
TIER = "delegate.tier"
STATUS = "delegate.status"
VERDICT = "delegate.verdict"
LEVEL = "delegate.level"
VERIFIED = "delegate.verified"
CODE = "delegate.code"
DECIDED_BY = "delegate.decided_by"
CRITERION_ID = "delegate.criterion.id"
COST_USD = "delegate.cost_usd"
COST_PROVENANCE = "delegate.cost_provenance"
ROLE = "delegate.role"
"""Who made a model call: `child` or `judge`."""
TOOL_STATUS = "delegate.tool.status"

VERDICTS_METRIC = "delegate.verdicts"
SHARE_METRIC = "delegate.verification.share"
JUDGE_METRIC = "delegate.judge.duration"
SECONDS_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Those that the conventions advise for the duration of model calls."""
SHARE_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)
