"""What a rate limiter learns of one model's limits: a pace, a limit of concurrent calls, and quotas.

All of it is plain data, so that several processes can share it in a file.
"""

import math
import os
from collections import deque
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Annotated

from pydantic import Field

from delegate.types.errors import ProviderFault
from delegate.types.ports import Quota

MAX_PAUSE = 3600.0
"""Seconds. A longer `Retry-After` is cut to this."""
MIN_RATE = 0.5
"""Calls per second. Backoff and quotas enforce slower limits; a slower pace would react too late to an outage's end."""
TRIAL_CALLS, OUTAGE_CALLS = 15, 5
"""How many calls show whether a slower pace has an effect, and how many rejections in a row that none is accepted."""
ENOUGH, NEARLY_ALL, SIGNIFICANT = 0.4, 0.9, 2.5
"""Shares of accepted calls, and the difference between two, in standard deviations, that isn't chance."""
FIRST_SPAN = 1.0
"""Seconds over which accepted calls are counted before the first rejection."""
PACING_SLACK = 0.05
"""Seconds of delay that later calls may catch up on."""
REFILL_SHARE = 0.95
"""The fraction of a quota's refill rate that is used, since the headers are rounded."""
LOW_SHARE = 0.5
"""Of a quota. While more of it is left, no other process needs to know."""
HISTORY_CALLS, HISTORY_SECONDS = 1_000, 20.0
"""How many calls are remembered, and for how long."""
CALLER_SECONDS = 60.0
"""After this time without a sign of a process, its calls in flight no longer count."""
MAX_CALLERS = 100

Moment = Annotated[float, Field(ge=-1e12, le=1e12)]
"""Seconds on the clock of the event loops."""
Amount = Annotated[float, Field(ge=0, le=1e15)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0, le=10**9)]


@dataclass(frozen=True, slots=True)
class SentCall:
    """One call that was sent: when, its sequence number, and whether it filled the concurrency window."""

    at: Moment
    number: int
    """0 if it isn't known, since what was learned has been replaced since it was sent."""
    filled: bool
    after_pause: bool = False
    """Whether it is the first one after a pause that the server asked for."""
    learned: str = ""
    """The ID of the `Learned` that it was counted in."""


@dataclass(slots=True)
class SendHistory:
    """The times of the latest calls that weren't rejected."""

    count: Count = 0
    times: Annotated[deque[Moment], Field(max_length=HISTORY_CALLS)] = field(default_factory=deque[float])

    def add(self, at: float) -> int:
        """Add a call and return its sequence number."""
        self.times.append(at)
        while len(self.times) > HISTORY_CALLS or self.times[0] < at - HISTORY_SECONDS:
            self.times.popleft()
        self.count += 1
        return self.count

    def remove(self, at: float) -> None:
        """Remove a call that was rejected."""
        if at in self.times:
            self.times.remove(at)

    def rate(self, end: float, span: float) -> float:
        """Calls per second in the `span` seconds before `end`."""
        return sum(end - span < at <= end for at in self.times) / span


@dataclass(slots=True)
class Trial:
    """Tells whether rejections depend on the pace, by the share of calls rejected before and after it was changed.

    A call counts as accepted once one that was sent later was rejected: rejections come faster than replies.
    """

    sent_before: Count = 0
    rejected_before: Count = 0
    sent: Count = 0
    """Calls since the pace was changed."""
    rejected: Count = 0
    first: Count = 1
    """The number of the first call that was sent since the pace was changed."""
    full_at: float = math.inf
    """When enough calls were sent."""
    is_over: bool = False
    """Whether the calls are enough to tell."""
    is_return: bool = False
    """Whether they are sent at the pace of before."""
    pauses_are_vain: bool = False
    """Whether a call was rejected though it came after the pause that the server had asked for."""

    def count_rejected(self, sent: SentCall, now: float) -> None:
        """Count the rejection of a call."""
        if sent.number < self.first:
            self.rejected_before += 1
            self.sent_before = max(self.sent_before, self.rejected_before)  # of a call that was counted elsewhere
            return
        self.rejected += 1
        self.pauses_are_vain |= sent.after_pause
        self.sent = max(self.sent, sent.number - self.first + 1)
        # Rejections of calls that were sent together come in any order, so that one of a later call is waited for.
        self.is_over = self.is_outage or sent.at > self.full_at
        if self.sent >= TRIAL_CALLS:
            self.full_at = min(self.full_at, now)

    def restart(self, sent: int) -> None:
        """The pace is slowed down after `sent` calls."""
        self.sent_before = self.rejected_before = 0
        self.extend(sent)
        self.is_return = self.pauses_are_vain = False

    def extend(self, sent: int) -> None:
        """The pace is raised after `sent` calls, since lowering it had no effect: all of them are known to be alike."""
        self.sent_before += sent - self.first + 1
        self.rejected_before += self.rejected
        self.sent, self.rejected, self.first, self.full_at = 0, 0, sent + 1, math.inf
        self.is_over, self.is_return = False, True

    @property
    def has_none_accepted(self) -> bool:
        return self.rejected == self.sent

    @property
    def doubts_pauses(self) -> bool:
        """Whether calls are rejected even after the pauses that the server asks for, but not all of them."""
        return self.is_return or (self.pauses_are_vain and not self.has_none_accepted)

    @property
    def is_outage(self) -> bool:
        """Whether so many were rejected in a row that it isn't chance."""
        return self.has_none_accepted and self.sent >= OUTAGE_CALLS

    @property
    def shows_effect(self) -> bool:
        """Whether clearly more or fewer calls are accepted than before, or nearly all: the pace is near a limit.

        If too few are, a slower pace is the safer choice whatever the cause is.
        """
        if not self.sent or not self.sent_before:
            return True
        accepted, accepted_before = 1 - self.rejected / self.sent, 1 - self.rejected_before / self.sent_before
        rejected = (self.rejected + self.rejected_before) / (self.sent + self.sent_before)
        deviation = math.sqrt(rejected * (1 - rejected) * (1 / self.sent + 1 / self.sent_before))
        return not ENOUGH <= accepted <= NEARLY_ALL or abs(accepted - accepted_before) > SIGNIFICANT * deviation


@dataclass(slots=True)
class Pacer:
    """Paces calls: unlimited until a rejection shows that they are too fast.

    A rejection sets the rate to half of the accepted rate. The rate then grows along a cubic curve as in TCP CUBIC
    (RFC 9438): fast at first, slowly near the accepted rate, and fast again beyond it.
    """

    next_at: Moment = 0.0
    """No call may be sent before this time."""
    halved_at: float = -math.inf
    plateau: Rate | None = None
    rate_before: Rate = math.inf
    floor: Rate = MIN_RATE
    curve_start: Moment = 0.0

    @property
    def span(self) -> float:
        """Seconds over which accepted calls are counted: long enough for at least two."""
        return FIRST_SPAN if self.plateau is None else max(FIRST_SPAN, 2 / self._rate(self.next_at))

    @property
    def is_slow(self) -> bool:
        """Whether a rejection slowed it down."""
        return self.plateau is not None

    def restore(self, now: float) -> None:
        """Continue at the rate before it was halved, or faster."""
        self.plateau = max(self.rate_before, 2 * self._rate(now))
        self.curve_start = now - self._time_to_plateau

    def record_send(self, now: float) -> None:
        """Schedule the next call. Idle time doesn't advance the curve, since it shows nothing about the limit."""
        if self.plateau is None:
            return
        idle = max(now - PACING_SLACK - self.next_at, 0.0)
        self.curve_start += idle
        self.next_at += idle + 1 / self._rate(now)

    def pause(self, until: float) -> None:
        """Send no call before `until`."""
        self.next_at = self.curve_start = max(self.next_at, until)

    def halve(self, now: float, accepted: float, *, is_outage: bool, is_paused: bool) -> None:
        """Continue at half of the accepted rate; in an outage, which doesn't show it, at half of the rate so far.

        Where the server asks for pauses, these lower the accepted rate too: it continues at a quarter or more.
        """
        is_first = self.plateau is None
        self.rate_before = math.inf if is_first else self._rate(now)
        if is_first:
            self.floor = MIN_RATE
        else:
            self.floor = self.rate_before if is_outage else self.rate_before / 2 if is_paused else MIN_RATE
        self.halved_at = self.curve_start = now
        self.adjust(accepted)

    def adjust(self, accepted: float) -> None:
        """Lower the accepted rate, because more of the calls that it counts were rejected."""
        self.plateau = min(self.rate_before, max(accepted, self.floor))

    def _rate(self, now: float) -> float:
        """Half the plateau at first, all of it after about 35 calls (within 2 to 10 seconds), twice that after 100."""
        assert self.plateau is not None
        done = max(now - self.curve_start, 0.0) / self._time_to_plateau - 1
        return max(self.plateau * (1 + done**3 / 2), MIN_RATE)

    @property
    def _time_to_plateau(self) -> float:
        assert self.plateau is not None
        return min(max(40 / self.plateau, 2.0), 10.0)


@dataclass(slots=True)
class ConcurrencyWindow:
    """Limits concurrent calls: unlimited until a rejection shows that there are too many."""

    limit: Annotated[float, Field(ge=1)] = math.inf
    base: Annotated[float, Field(ge=1)] = math.inf
    filled_calls: Count = 0

    @property
    def is_limited(self) -> bool:
        return self.limit < math.inf

    def reset(self) -> None:
        """Return to the limit that was learned, since more were rejected."""
        self.limit, self.filled_calls = self.base, 0

    def shrink(self, in_flight: int) -> None:
        """Limit concurrency to the calls that were in flight when one more was rejected."""
        self.limit = self.base = in_flight
        self.filled_calls = 0

    def record_accepted(self, *, filled: bool) -> None:
        """Count an accepted call. The window grows by 1 after 20 calls that filled it, by 8 after 40, and so on."""
        if filled:
            self.filled_calls += 1
            self.limit = self.base + self.filled_calls**3 // 8000


@dataclass(slots=True)
class QuotaBucket:
    """Mirrors one quota of the provider as a token bucket: it refills steadily, and every call takes some of it.

    The cost of a call is learned from how the reported level changes, so it includes the calls of other processes.
    """

    least_cost: Amount
    cost: Amount
    rate: Amount = 0.0
    """The refill rate in units per second; 0 before the first report."""
    limit: Amount = 0.0
    left: Moment = 0.0
    at: Moment = 0.0
    reported_left: Amount = 0.0
    last_report: SentCall = SentCall(0.0, 0, filled=False)

    def is_low(self, now: float) -> bool:
        """Whether so much of it is used up that others should know."""
        return bool(self.rate) and self._left_at(now) < LOW_SHARE * self.limit

    def wait(self, now: float) -> float:
        """Seconds until the bucket holds enough for a call."""
        return (min(self.cost, self.limit) - self._left_at(now)) / (REFILL_SHARE * self.rate) if self.rate else 0.0

    def record_send(self, now: float) -> None:
        """Take the cost of one call."""
        if self.rate:
            self.left, self.at = self._left_at(now) - self.cost, now

    def report(self, sent: SentCall, later: int, limit: int | None, left: int | None, full_in: float | None) -> None:
        """Update from the headers of a call after which `later` more were sent. Ignores incomplete and old reports."""
        if limit is None or left is None or not full_in or left >= limit or sent.number <= self.last_report.number:
            return
        if self.rate:
            refilled = min(self.rate * (sent.at - self.last_report.at), self.limit - self.reported_left)
            cost = (self.reported_left + refilled - left) / (sent.number - self.last_report.number)
            self.cost = max(self.cost + 0.3 * (cost - self.cost), self.least_cost)
        self.reported_left, self.last_report = left, sent
        self.limit, self.rate = limit, (limit - left) / full_in
        self.left, self.at = left - later * self.cost, sent.at

    def _left_at(self, now: float) -> float:
        return min(self.limit, self.left + REFILL_SHARE * self.rate * (now - self.at))


@dataclass(slots=True)
class Rejection:
    """The last rejection by the provider, without its text."""

    fault: ProviderFault
    provider: Annotated[str, Field(max_length=100)]
    status: int | None = None


@dataclass(slots=True)
class Callers:
    """The calls in flight of one process, and when it last said so."""

    process: Annotated[int, Field(gt=0, lt=2**31)]
    in_flight: Count
    at: Moment

    def are_alive(self, now: float) -> bool:
        """Whether the calls still count: a process that was killed holds no one back."""
        if now - self.at > CALLER_SECONDS:
            return False
        try:
            os.kill(self.process, 0)
        except OSError as error:
            return not isinstance(error, ProcessLookupError)
        return True


def new_quotas() -> tuple[QuotaBucket, QuotaBucket]:
    """Those of requests and of tokens."""
    return QuotaBucket(least_cost=1, cost=1), QuotaBucket(least_cost=0, cost=0)


@dataclass(slots=True)
class Learned:
    """All that is known of one model's limits."""

    id: Annotated[str, Field(max_length=32)] = field(default_factory=lambda: token_hex(8))
    history: SendHistory = field(default_factory=SendHistory)
    pacer: Pacer = field(default_factory=Pacer)
    window: ConcurrencyWindow = field(default_factory=ConcurrencyWindow)
    quotas: tuple[QuotaBucket, QuotaBucket] = field(default_factory=new_quotas)
    rejection: Rejection | None = None
    trial: Trial = field(default_factory=Trial)
    rejected_at: float = -math.inf
    """When a rejection last changed the pace."""
    rejections: Count = 0
    """The number of consecutive rejections."""
    pause_was_asked: bool = False
    """Whether the next call is the first one after a pause that the server asked for."""
    callers: Annotated[dict[str, Callers], Field(max_length=MAX_CALLERS)] = field(default_factory=dict[str, Callers])
    """The processes, by an ID of each."""

    def is_limited(self, now: float) -> bool:
        """Whether something is known that others should know."""
        return self.rejection is not None or any(quota.is_low(now) for quota in self.quotas)

    def delay(self, now: float) -> float:
        """Seconds until the pace and the quotas allow the next call."""
        return max(self.pacer.next_at - now, *(quota.wait(now) for quota in self.quotas))

    def record_send(self, now: float) -> int:
        """Count a call and return its number."""
        self.pacer.record_send(now)
        for quota in self.quotas:
            quota.record_send(now)
        return self.history.add(now)

    def report(self, quota: Quota, sent: SentCall) -> None:
        """Update the quotas from the headers of a call."""
        later, (requests, tokens) = self.history.count - sent.number, self.quotas
        requests.report(sent, later, quota.requests_limit, quota.requests_left, quota.requests_full_in)
        tokens.report(sent, later, quota.tokens_limit, quota.tokens_left, quota.tokens_full_in)

    def merge(self, times: deque[float]) -> None:
        """Take in the calls of a limiter that joins: they count for the pace if nothing but its start is known."""
        self.history.times = deque(sorted((*self.history.times, *times))[-HISTORY_CALLS:])
        if self.pacer.is_slow and self.pacer.rate_before == math.inf and self.pacer.halved_at == self.rejected_at:
            self.pacer.adjust(self.history.rate(self.rejected_at, FIRST_SPAN))

    def forget_rejections(self) -> None:
        """Drop the limits that were learned from rejections."""
        self.pacer, self.window, self.rejection = Pacer(), ConcurrencyWindow(), None

    def is_possible(self, latest: float) -> bool:
        """Whether no time is later than `latest`, so that nobody would wait forever for what a file says."""
        quotas = (quota.at for quota in self.quotas)
        return max(self.pacer.next_at, self.pacer.curve_start, self.rejected_at, *quotas) <= latest


def is_low(quota: Quota) -> bool:
    """Whether so much of a reported quota is used up that others should know."""
    parts = ((quota.requests_left, quota.requests_limit), (quota.tokens_left, quota.tokens_limit))
    return any(left is not None and limit and left < LOW_SHARE * limit for left, limit in parts)
