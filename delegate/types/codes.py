"""Every reason code, by what gives it. docs/why-fail.md and docs/verdicts.md say what each means."""

from typing import Literal, NewType

ProviderFault = Literal[
    "auth",  # 401, 402, 403: the key is invalid or may not use the model, or the account has no credit
    "bad_request",  # 400, 404, 422: the request can't succeed as it is
    "context_overflow",  # the request is longer than the model's context window, or than a minute's quota
    "rate_limited",  # 429
    "overloaded",  # 503, 529
    "server_error",  # 408, 409, and other 5xx
    "connection",  # no complete response was received
    "timeout",  # delegate's own timeout or the SDK's
    "bad_reply",  # the response isn't in the provider's format
    "exhausted",  # a scripted client has no replies left
]
WorkCode = Literal[
    "met", "trusted", "not_met", "cannot_tell", "skipped", "evidence_not_found", "self_report_only", "check_tampered",
    "own_tests_only", "no_clean_room", "nothing_ran", "says_failed", "unclear_result", "own_commands", "unknown_effect",
    "own_files", "file_unseen", "seen_by_model", "unlinked", "unconfirmed", "incomplete_record", "not_read",
    "unknown_tool", "changed_after_check", "not_confident", "truncated_for_judge", "below_min_level",
    "not_verified", "no_deciding_criterion",
]  # fmt: skip
"""What a check or a judge says of the work."""
GateCode = Literal[
    "run_failed", "empty_report", "degenerate_report", "report_missing_required_fields", "claimed_artifact_missing",
    "plan_steps_incomplete", "pending_form_values", "no_observed_delta", "no_progress_in_window",
]  # fmt: skip
"""Why the gate refuses a run."""
StoppedCode = Literal[
    "timeout", "resource_limit", "path_refused", "unreadable", "too_large", "invalid_criterion", "invalid_schema",
    "result_cut", "too_many_combinations", "probe_unbound",
]  # fmt: skip
"""Why a check could not end, which the work or the criterion is to blame for."""
UnableCheckCode = Literal[
    "no_workspace", "probe_failed", "probe_timeout", "probe_unavailable", "no_receipts", "commands_not_allowed",
    "network_not_allowed", "sandbox_unavailable", "network_isolation_unavailable",
    "processes_left", "sandbox_failed", "command_failed",
]  # fmt: skip
"""Why a check could not look at the work."""
UnableJudgeCode = Literal[
    "judge_unavailable", "judge_unparseable", "judge_refused", "no_eligible_judge", "budget_exceeded", "cancelled",
    "internal_error",
]  # fmt: skip
"""Why no judge decided."""
NobodyLookedCode = Literal[UnableCheckCode, UnableJudgeCode]
"""Codes of verdicts and criteria that say nothing about the work, because nobody could look at it."""
VerdictCode = Literal[WorkCode, GateCode, StoppedCode, NobodyLookedCode]
FindingCode = Literal[
    "vacuous_check", "own_tests_only", "no_clean_room", "changed_after_check", "git_changed", "ignored_folder_changed",
    "inputs_changed", "hidden_text", "truncated_for_judge", "unrecorded_file", "looks_unsupported", "judge_substituted",
]  # fmt: skip
"""Codes of findings, except those of criteria that are `findings_only`."""
WorkspaceCode = Literal[
    "workspace_not_found", "workspace_not_copied", "workspace_not_a_repository",
    "workspace_base_not_found", "workspace_git_missing", "workspace_git_failed",
]  # fmt: skip
"""Why a workspace that a person names can't be used."""
CouldNotRunCode = Literal[
    ProviderFault, WorkspaceCode, "tier_above_parent", "not_started", "tools_fixed", "internal_error", "workspace",
    "blocked",
]  # fmt: skip
"""Why a child with the status `failed` could not run, which says nothing about the work. Except `context_overflow`."""
ChildCode = Literal[
    CouldNotRunCode, "max_steps", "budget_exceeded", "cancelled", "refused", "truncated", "unexpected_stop",
    "malformed_call", "no_progress", "aborted", "too_many_tool_calls", "crashed", "bad_report", "report_too_long",
    "workspace_too_large", "exit_code", "unreadable_output", "reported_failure", "needs_approval", "needs_a_person",
    "interrupted", "hermes_failed",
]  # fmt: skip
"""How a child ended that did not complete."""
CallCode = Literal[
    WorkspaceCode, "workspace_too_large", "invalid_json", "not_an_object", "no_task", "goal_and_tasks",
    "too_many_tasks", "unknown_field", "wrong_type", "empty", "too_large", "unknown_tier", "unknown_criterion_kind",
    "unknown_role", "no_role", "no_goal_mode", "no_steps", "unknown_tool", "mcp_server", "invalid_criterion",
    "invalid_schema", "duplicate_id", "path_refused", "vacuous_check", "tier_above_parent", "tier_below_floor",
    "unknown_endpoint", "unknown_model", "unknown_price", "no_api_key", "no_model_for_tier", "budget_exceeded",
    "too_deep", "home_not_writable", "unknown_handle", "other_run", "ambiguous_id", "unknown_task", "unknown_page",
    "cannot_resume", "cannot_message", "running", "outcome_unknown", "past_the_end", "unreadable", "bad_output_folder",
    "report_too_long", "not_approved", "cannot_merge", "bad_attempts", "shared_workspace", "no_scratch",
]  # fmt: skip
"""Why a call is refused, or a record can't be read."""
FileCode = Literal[
    "unreadable_file", "unreadable_row", "invalid_yaml", "invalid_receipt", "bad_header", "bad_row", "bad_task",
    "bad_id", "bad_needs", "bad_when", "untrusted_file", "templates_without_columns", "unknown_column", "circle",
    "unknown_need", "not_needed", "unknown_reference", "missing_reference", "bad_results", "results_exist",
    "ran_before", "tasks_changed", "source_changed", "bad_output", "port_in_use", "batch_running", "batch_in_a_run",
    "unknown_batch", "no_worker", "config_error", "not_a_file", "one_stdin", "two_inputs", "no_verdict",
    "unknown_criterion", "invalid_ruling", "no_terminal", "nothing_to_rule", "too_few_rulings", "missing_extra",
    "invalid_options", "no_model", "which_model", "not_confirmed", "unauthorized", "wrong_host", "unknown_path",
    "wrong_method", "unknown_method", "too_many_calls", "unknown_approval",
]  # fmt: skip
"""Errors of batches, files, the command, and requests to `delegate serve` and `delegate rpc`."""
CallErrorCode = Literal[CallCode, FileCode]
Code = Literal[VerdictCode, FindingCode, ChildCode, CallErrorCode]
OwnCode = NewType("OwnCode", str)
"""A code that isn't one of delegate's, such as a failure mode of a rubric, or what a runner of your own reports."""
