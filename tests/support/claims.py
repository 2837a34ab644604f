"""Criteria for the recorded runs in `claimcheck_train.jsonl`, written from a run's instruction alone.

One writer per domain. It reads the instruction and knows the domain's tools; what the run did, and whether that was
right, it doesn't see. `can_probe` says whether the tools that show the state can be called.

Without them, the state that a call returns has to be final: an answer that is only pending or accepted is no write.
"""

import re
from typing import Any

Criterion = dict[str, Any]
SOME = {"matches": r"\S"}
"""Any text: the instruction doesn't say which."""


def criteria_for(domain: str, instruction: str, *, can_probe: bool) -> list[Criterion]:
    """The criteria for one instruction."""
    return {"booking": _booking, "crm": _crm, "coding": _coding}[domain](instruction, can_probe)


def _from(tool: str, path: str) -> Criterion:
    return {"from": {"tool": tool, "path": path}}


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in {text}"
    return found[1]


def _booking(instruction: str, can_probe: bool) -> list[Criterion]:
    title = _found(r"'([^']+)'", instruction)
    email = _found(r"([\w.]+@[\w.-]+\w)", instruction)
    date, time = _found(r"(\d{4}-\d{2}-\d{2})", instruction), _found(r"(\d{2}:\d{2})", instruction)
    start = f"{date}T{time}"
    zone = _found(r"((?:America|Asia|Europe)/\w+)", instruction)
    minutes = int(_found(r"(\d+)[- ]minute", instruction))
    event = {"title": title, "attendees": [email], "timezone": zone, "duration_min": minutes}
    create = {
        "tool": "calendar.create_event",
        "args": {**event, "start": {"matches": f"^{start}"}},
        "result": {"event_id": SOME} if can_probe else {"status": "confirmed"},
    }
    event_id = _from("calendar.create_event", "event_id")
    invite = {
        "tool": "email.send_invite",
        "args": {"event_id": event_id, "to": [email]},
        "result": {"message_id": SOME},
    }
    booked = {"kind": "receipt", "mode": "exactly", "calls": [create, invite]}
    if not can_probe:
        return [booked]
    state = (
        f"status === 'confirmed' && start.startsWith('{start}') && timezone === '{zone}'"
        f" && attendees.includes('{email}') && invites_sent.includes('{email}')"
    )
    return [booked, {"kind": "probe", "tool": "calendar.get_event", "args": {"event_id": event_id}, "expr": state}]


def _crm(instruction: str, can_probe: bool) -> list[Criterion]:
    name = _found(r"([A-Z][a-z]+ [A-Z][a-z]+)(?:'s| at| \(|,| needs)", instruction)
    company = re.search(r"(?: at |\()([A-Z]\w+ [A-Z]\w+)", instruction)
    stage = _found(r"(Lead|Qualified|Proposal|Negotiation|Closed Won)", instruction)
    contact = {"name": name} | ({"company": company[1]} if company else {})
    record = _from("crm.search_contacts", "results[0].record_id")
    calls = [
        {"tool": "crm.search_contacts", "result": {"results": [contact]}},
        {
            "tool": "crm.update_contact",
            "args": {"record_id": record},
            "result": {"record_id": record} if can_probe else {"record": {"record_id": record}},
        },
        {"tool": "crm.add_note", "args": {"record_id": record, "body": SOME}, "result": {"note_id": SOME}},
        {"tool": "crm.update_deal_stage", "args": {"stage": stage}, "result": {"stage": stage}},
    ]
    writes = [call["tool"] for call in calls[1:]]
    updated = {"kind": "receipt", "mode": "exactly", "of": writes, "calls": calls}
    # The instruction speaks of new fields without their values, so no check can be written for them.
    fields = {"kind": "manual", "text": f"the new fields of {name} are the right ones"}
    if not can_probe:
        return [updated, fields]
    state = f"notes.length > 0 && stage === '{stage}'"
    return [updated, {"kind": "probe", "tool": "crm.read_record", "args": {"record_id": record}, "expr": state}, fields]


def _coding(instruction: str, can_probe: bool) -> list[Criterion]:
    path = _found(r"([\w./]+\.(?:py|go|ts))", instruction)
    write = {"tool": "fs.write_file", "args": {"path": path}}
    calls = [
        write if can_probe else {**write, "result": {"sha256": SOME}},
        # The suite, and not the tests of one file.
        {"tool": "shell.run", "args": {"command": {"matches": r"^pytest(?: -m \w+)?$"}}, "result": {"exit_code": 0},
         "after": "fs.write_file"},
        {"tool": "git.commit", "args": {"paths": [path]}, "result": {"sha": SOME}, "after": "shell.run"},
    ]  # fmt: skip
    committed = {"kind": "receipt", "mode": "exactly", "of": ["fs.write_file", "git.commit"], "calls": calls}
    if not can_probe:
        return [committed]
    passes = {"kind": "probe", "tool": "ci.run_tests", "expr": "exit_code === 0 && failed === 0 && passed > 0"}
    return [committed, passes, {"kind": "probe", "tool": "git.show_head", "expr": "sha.length > 0"}]
