"""Deeds in words, written from a benchmark's expected tool calls, and judges that quote true sentences for them."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from delegate.testing import judge_reply
from delegate.types.ports import ChatRequest
from tests.support.words import asked_ids

Args = Mapping[str, Any]


def _flights(args: Args) -> str:
    return ", ".join(f"{one['flight_number']} on {one['date']}" for one in args["flights"])


def _people(args: Args) -> str:
    return " and ".join(f'"{one["first_name"]}" "{one["last_name"]}"' for one in args["passengers"])


AIRLINE: dict[str, Callable[[Args], str]] = {
    "book_reservation": lambda args: (
        f"A {args['cabin']} trip from {args['origin']} to {args['destination']} was booked for {args['user_id']} with"
        f" flights {_flights(args)} for {_people(args)}"
    ),
    "cancel_reservation": lambda args: f"Reservation {args['reservation_id']} was cancelled",
    "update_reservation_flights": lambda args: (
        f"Reservation {args['reservation_id']} was changed to flights {_flights(args)} in `{args['cabin']}`,"
        f" paid with {args['payment_id']}"
    ),
    "update_reservation_baggages": lambda args: (
        f"The bags of reservation {args['reservation_id']} were updated to {args['total_baggages']} in total,"
        f" {args['nonfree_baggages']} of them paid with {args['payment_id']}"
    ),
    "update_reservation_passengers": lambda args: (
        f"The passengers of reservation {args['reservation_id']} were changed to {_people(args)}"
    ),
    "send_certificate": lambda args: f"A certificate of ${args['amount']} was sent to {args['user_id']}",
}
"""How a person asks for each write of the airline benchmark."""


def claims_in_words(domain: str, instruction: str) -> list[str]:
    """The deeds that an instruction of claimcheck-bench asks for, in words."""

    def found(pattern: str) -> str:
        match = re.search(pattern, instruction)
        assert match, f"{pattern} is not in {instruction}"
        return match[1]

    if domain == "booking":
        email, day, time = found(r"([\w.]+@[\w.-]+\w)"), found(r"(\d{4}-\d{2}-\d{2})"), found(r"(\d{2}:\d{2})")
        title, minutes = found(r"'([^']+)'"), found(r"(\d+)[- ]minute")
        meeting = f"The meeting '{title}' with {email} was scheduled for {day} at {time} for {minutes} minutes"
        return [meeting, f"The invite was sent to {email}"]
    if domain == "crm":
        name = found(r"([A-Z][a-z]+ [A-Z][a-z]+)(?:'s| at| \(|,| needs)")
        stage = found(r"(Lead|Qualified|Proposal|Negotiation|Closed Won)")
        updated = f"The contact record of {name} was updated"
        return [updated, "A note was added to the contact record", f"The deal stage was updated to '{stage}'"]
    path = found(r"([\w./]+\.(?:py|go|ts))")
    return [f"{path} was changed", "The tests pass", f"The change to {path} was committed to git"]


def evidence_lines(request: ChatRequest) -> Iterator[tuple[str, str]]:
    """Every line of the evidence that the judge sees, with the name of its source."""
    for name, _, text in re.findall(r"<<<(\S+) (\w+)>>>\n(.*?)\n<<<end \1 \2>>>", request.messages[0].text, re.DOTALL):
        for line in text.splitlines():
            if re.search(r"\w{3}", line):
                yield name, line[:300]


def asked(request: ChatRequest) -> dict[str, str]:
    """The criteria by id."""
    return dict(re.findall(r"^(c\d+(?:\.sure)?): (.*) \[.*\]$", request.messages[0].text, re.MULTILINE))


def most_alike(criterion: str, lines: Iterator[tuple[str, str]]) -> tuple[str, str]:
    """The line that shares most words with the criterion."""
    wanted = set(re.findall(r"\w+", criterion.lower()))
    return max(lines, key=lambda line: len(wanted & set(re.findall(r"\w+", line[1].lower()))), default=("", ""))


def believer(of: Callable[[str], bool] = lambda source: True) -> Callable[[ChatRequest], str]:
    """A judge that finds everything met and quotes the likeliest true sentence of the given sources."""

    def judge(request: ChatRequest) -> str:
        lines = [line for line in evidence_lines(request) if of(line[0])]
        quotes = {id: most_alike(text, iter(lines)) for id, text in asked(request).items()}
        return judge_reply(**{id: ("met", quotes[id][1] if id in quotes else "") for id in asked_ids(request)})

    return judge
