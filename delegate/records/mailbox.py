"""The messages of parents to running children: tables of the records, so that any process can send one.

A message is `queued` until the child's process takes it, between two turns. That is committed before the child reads
it, and what wasn't taken by the process that it was sent to is `never_read` once that process has ended the child's
work, or is lost. So no message is both read and `never_read`, whenever a process is killed. The message by which a task
continues, and an answer, are what the task needs: they stay `queued` while it is lost, and go to the process that
resumes it.

The first message that is sent while the child waits for an answer to a question is the answer.
"""

import secrets
import sqlite3
import time

from delegate._util.processes import is_alive
from delegate._util.redaction import redactor
from delegate.contract.readback import unknown_handle
from delegate.records.aside import Statement
from delegate.types import JsonObject, MessageState, SentMessage
from delegate.types.errors import CallError

MAX_MESSAGES = 20
"""How many messages one child can be sent."""
MAX_CHARS = 8_000
"""Length of one of them."""
_HAS_STOPPED = """COALESCE((
    SELECT kind FROM events WHERE events.handle = tasks.handle AND kind IN ('child.started', 'child.done')
    ORDER BY rowid DESC LIMIT 1
) = 'child.done', 0)"""
_IS_ASKING = "EXISTS (SELECT 1 FROM questions WHERE handle = tasks.handle AND message IS NULL AND NOT is_closed)"
_WHY_NOT = f"""
CASE WHEN ended_at IS NOT NULL THEN 'ended'
    WHEN NOT EXISTS (SELECT 1 FROM mailboxes WHERE handle = tasks.handle) THEN 'deaf'
    WHEN {_HAS_STOPPED} THEN 'stopped'
    WHEN (SELECT COUNT(*) FROM messages WHERE handle = tasks.handle) >= {MAX_MESSAGES} AND NOT {_IS_ASKING} THEN 'full'
END"""  # noqa: S608
_REASONS = {
    "ended": ("it has ended", "delegate a new task"),
    "lost": ("its process was lost", "`delegate run --resume {handle}` goes on with it"),
    "deaf": ("its runner takes no messages", "wait for its result, or stop it"),
    "stopped": ("it has stopped working, and its verdict is being made", "wait for its result"),
    "full": (f"it was sent {MAX_MESSAGES} messages, which is the most", "wait for its result"),
}
"""Why a child can't be sent a message, and what to do."""
CREATE = "INSERT OR IGNORE INTO mailboxes VALUES (?, ?)"
_INSERT = f"""
INSERT INTO messages SELECT ?, handle, process, ?, ?, NULL FROM tasks
WHERE handle = ? AND process = ? AND {_WHY_NOT} IS NULL
"""  # noqa: S608
ANSWER = """
UPDATE questions SET message = ?1 WHERE handle = ?2 AND message IS NULL AND NOT is_closed
    AND n = (SELECT MAX(n) FROM questions WHERE handle = ?2) AND EXISTS (SELECT 1 FROM messages WHERE id = ?1)
"""
SELECT_ANSWER = """
SELECT text FROM questions JOIN messages ON messages.id = message WHERE questions.handle = ? AND n = ?
"""
# By the first of these, the next message to a child becomes the answer; after the second, none does.
OPEN_QUESTION = "INSERT INTO questions SELECT ?, ?, NULL, 0 FROM mailboxes WHERE handle = ?"
CLOSE_QUESTION = "UPDATE questions SET is_closed = 1 WHERE handle = ? AND n = ?"
# A child that was left behind may still ask for messages, but those are `never_read`.
DELIVER = f"""
UPDATE messages SET delivered_at = ? WHERE id = ? AND EXISTS (
    SELECT 1 FROM tasks WHERE tasks.handle = messages.handle AND ended_at IS NULL AND NOT {_HAS_STOPPED}
)
"""  # noqa: S608
# A process that has taken a task over gets what its child needs and hasn't read.
MOVE = """
UPDATE messages SET process = ?1 WHERE handle = ?2 AND process = ?3 AND delivered_at IS NULL
    AND (id IN (SELECT message FROM questions WHERE handle = ?2)
        OR (?4 AND rowid = (SELECT MIN(rowid) FROM messages WHERE handle = ?2)))
    AND EXISTS (SELECT 1 FROM tasks WHERE handle = ?2 AND process = ?1)
"""
SELECT_WAITING = """
SELECT id, text, (SELECT n FROM questions WHERE handle = messages.handle AND message = id) FROM messages
WHERE handle = ? AND process = ? AND delivered_at IS NULL ORDER BY rowid
"""
_SELECT_ALL = f"""
SELECT id, text, sent_at, delivered_at, tasks.process = messages.process AND ended_at IS NULL AND NOT {_HAS_STOPPED},
    tasks.process, EXISTS (SELECT 1 FROM questions WHERE handle = tasks.handle AND message = id)
FROM messages JOIN tasks ON tasks.handle = messages.handle WHERE messages.handle = ? ORDER BY messages.rowid
"""  # noqa: S608


def sendable(text: str) -> str:
    """The text of a message as it is stored and read. Raises CallError if it is no message."""
    if not text.strip():
        raise CallError("empty", "`text` is empty", field="text", hint="say what the child should do")
    if len(text) > MAX_CHARS:
        message = f"`text` is {len(text):,} characters long, but at most {MAX_CHARS:,} are allowed"
        raise CallError("too_large", message, field="text", hint="say it in fewer words")
    return redactor.text(text.encode("utf-8", "replace").decode())


def receiver(connection: sqlite3.Connection, handle: str) -> str:
    """The process of a child that can be sent a message. Raises CallError if it can't, with the reason."""
    row = connection.execute(f"SELECT process, {_WHY_NOT} FROM tasks WHERE handle = ?", (handle,)).fetchone()  # noqa: S608
    if row is None:
        raise unknown_handle()
    process, reason = row
    reason = reason if reason == "ended" or is_alive(process) else "lost"
    if reason is not None:
        why, hint = _REASONS[reason]
        message = f"{handle} can't be sent a message: {why}"
        raise CallError("cannot_message", message, field="handle", hint=hint.format(handle=handle))
    return process


def insert(handle: str, process: str, text: str) -> tuple[SentMessage, Statement]:
    """A message, and the statement that stores it if its receiver still takes it."""
    message = SentMessage(id=secrets.token_hex(6), handle=handle, state="queued", text=text, sent_at=time.time())
    return message, (_INSERT, (message.id, message.sent_at, text, handle, process))


def continued_from(handle: str) -> str | None:
    """The handle of the task that this one continues; None if it continues none."""
    run_id, _, number = handle.rpartition("-")
    return f"{run_id}-{number[1:]}" if number.startswith("0") and len(number) > 1 else None


def continuation_of(handle: str) -> str:
    """The handle under which a task continues."""
    run_id, _, number = handle.rpartition("-")
    return f"{run_id}-0{number}"


def messages(connection: sqlite3.Connection, handle: str) -> list[SentMessage]:
    """All messages to a child, in the order in which they were sent."""
    found: list[SentMessage] = []
    for n, row in enumerate(connection.execute(_SELECT_ALL, (handle,))):
        id, text, sent_at, delivered_at, is_open, process, is_answer = row
        is_needed = bool(is_answer) or (n == 0 and continued_from(handle) is not None)
        waits = is_open and (is_needed or is_alive(process))
        state: MessageState = "delivered" if delivered_at is not None else "queued" if waits else "never_read"
        times: JsonObject = {"sent_at": sent_at, "delivered_at": delivered_at}
        found.append(SentMessage(id=id, handle=handle, state=state, text=text, is_answer=bool(is_answer), **times))
    return found
