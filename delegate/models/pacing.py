"""What a rate limiter learns of one model's limits: a pace, a limit of concurrent calls, and quotas.

All of it is plain data, so that several processes can share it in a file.
"""

import math
import os
import random
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from delegate.types.errors import ProviderError, ProviderFault
from delegate.types.ports import Quota

INITIAL_BACKOFF, MAX_BACKOFF = 0.5, 30.0
"""Seconds to pause, unless the server's `Retry-After` is longer. Doubles with each failure."""
MAX_PAUSE = 3600.0
"""Seconds. A longer `Retry-After` is cut to this."""
MIN_RATE = 0.5
"""Calls per second. Backoff and quotas enforce slower limits; a slower pace would react too late to an outage's end."""
GROWTH, LEAST_GROWTH, MOST_GROWTH = 0.01, 0.02, 0.15
"""The share by which the rate rises with each call, and by how much at least and at most, in calls per second: four
times as much below the accepted rate."""
TRIAL_CALLS, OUTAGE_CALLS = 15, 5
"""How many calls show whether a slower pace has an effect, and how many rejections in a row that none is accepted."""
ENOUGH, NEARLY_ALL, SIGNIFICANT = 0.4, 0.9, 2.5
"""Shares of accepted calls, and the difference between two, in standard deviations, that isn't chance."""
SPAN = 1.0
"""Seconds over which accepted calls are counted."""
FEW_CALLS = 0.5
"""In a span, of those that count. If calls are rejected that are this rare, their rate isn't the cause."""
PACING_SLACK = 0.05
"""Seconds of delay that later calls may catch up on."""
REFILL_SHARE = 0.95
"""The fraction of a quota's refill rate that is used, since the headers are rounded."""
LOW_SHARE = 0.5
"""Of a quota. While more of it is left, no other process needs to know."""
MEMORY_SECONDS = 300.0
"""After this time without a rejection, the limits learned from rejections are dropped."""
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

    at: float
    number: int
    """0 if it isn't known, since what was learned has been replaced since it was sent."""
    filled: bool
    after_pause: bool
    """Whether it is the first one after a pause that the server asked for."""
    learned: str
    """The ID of the `Learned` that it was counted in."""


@dataclass(slots=True)
class Trial:
    """Tells whether rejections depend on the pace, by the share of calls rejected before and after it was changed.

    A call counts as accepted once one that was sent later was rejected: rejections come faster than replies.
    """

    sent_before: Count = 0
    rejected_before: Count = 0
    sent: Count = 0
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

    def count(self, call: SentCall, now: float) -> None:
        """Count the rejection of a call."""
        if call.number < self.first:
            self.rejected_before += 1
            self.sent_before = max(self.sent_before, self.rejected_before)  # of a call that was counted elsewhere
            return
        self.rejected += 1
        self.pauses_are_vain |= call.after_pause
        self.sent = max(self.sent, call.number - self.first + 1)
        # Rejections of calls that were sent together come in any order, so that one of a later call is waited for.
        self.is_over = self.is_outage or call.at > self.full_at
        if self.sent >= TRIAL_CALLS:
            self.full_at = min(self.full_at, now)

    def after(self, sent: int) -> "Trial":
        """The trial of a slower pace, after `sent` calls."""
        return Trial(sent - self.first + 1, self.rejected, first=sent + 1)

    def of_return(self, sent: int) -> "Trial":
        """The trial of the pace of before, since lowering it had no effect: all calls are known to be alike."""
        before, rejected = self.sent_before + sent - self.first + 1, self.rejected_before + self.rejected
        return Trial(before, rejected, first=sent + 1, is_return=True, pauses_are_vain=self.pauses_are_vain)

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
        share, before = self.rejected / self.sent, self.rejected_before / self.sent_before
        if not ENOUGH <= 1 - share <= NEARLY_ALL:
            return True
        both = (self.rejected + self.rejected_before) / (self.sent + self.sent_before)
        deviation = math.sqrt(both * (1 - both) * (1 / self.sent + 1 / self.sent_before))
        return abs(share - before) > SIGNIFICANT * deviation


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
    reported_at: Moment = 0.0
    reported_call: Count = 0

    def left_at(self, now: float) -> float:
        return min(self.limit, self.left + REFILL_SHARE * self.rate * (now - self.at))

    def wait(self, now: float) -> float:
        """Seconds until the bucket holds enough for a call."""
        return (min(self.cost, self.limit) - self.left_at(now)) / (REFILL_SHARE * self.rate) if self.rate else 0.0

    def record_send(self, now: float) -> None:
        """Take the cost of one call."""
        if self.rate:
            self.left, self.at = self.left_at(now) - self.cost, now

    def report(self, call: SentCall, later: int, limit: int | None, left: int | None, full_in: float | None) -> None:
        """Update from the headers of a call after which `later` more were sent. Ignores incomplete and old reports."""
        if limit is None or left is None or not full_in or left >= limit or call.number <= self.reported_call:
            return
        if self.rate:
            refilled = min(self.rate * (call.at - self.reported_at), self.limit - self.reported_left)
            cost = (self.reported_left + refilled - left) / (call.number - self.reported_call)
            self.cost = max(self.cost + 0.3 * (cost - self.cost), self.least_cost)
        self.reported_left, self.reported_at, self.reported_call = left, call.at, call.number
        self.limit, self.rate = limit, (limit - left) / full_in
        self.left, self.at = left - later * self.cost, call.at


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
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass
        return now - self.at <= CALLER_SECONDS


@dataclass(slots=True)
class Learned:
    """All that is known of one model's limits.

    A rejection sets the rate to half of the accepted rate, from which it rises with each call. There is no pace and no
    window of concurrent calls before.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    version: Literal[2] = 2
    id: Annotated[str, Field(max_length=32)] = field(default_factory=lambda: token_hex(8))
    started: float = 0.0
    """The time since the epoch when the clock of the event loops was 0."""
    at: Moment = 0.0
    """When it was written into the file."""
    count: Count = 0
    """How many calls were sent."""
    recent: Moment = 0.0
    """The calls of late that weren't rejected, of which one of `SPAN` seconds before `recent_at` counts a third."""
    recent_at: Moment = 0.0
    next_at: Moment = 0.0
    """No call may be sent before this time."""
    rate: Rate = math.inf
    """Calls per second."""
    rate_before: Rate = math.inf
    """The rate before it was halved, which is more than half of `accepted` and `least`."""
    least: Rate = MIN_RATE
    accepted: Moment = 0.0
    halved_at: float = -math.inf
    window: Annotated[float, Field(ge=1)] = math.inf
    """How many calls were in flight when one more was rejected."""
    filled_calls: Count = 0
    """How many of those that were accepted since then filled it."""
    requests: QuotaBucket = field(default_factory=lambda: QuotaBucket(least_cost=1, cost=1))
    tokens: QuotaBucket = field(default_factory=lambda: QuotaBucket(least_cost=0, cost=0))
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

    # -------------------------------------------------------------------------------------------- sending

    def is_limited(self, now: float) -> bool:
        """Whether something is known that others should know."""
        buckets = self.requests, self.tokens
        return self.rejection is not None or any(
            each.rate and each.left_at(now) < LOW_SHARE * each.limit for each in buckets
        )

    def delay(self, now: float) -> float:
        """Seconds until the pace and the quotas allow the next call."""
        return max(self.next_at - now, self.requests.wait(now), self.tokens.wait(now))

    @property
    def most_in_flight(self) -> float:
        """The window. It grows by 1 after 20 calls that filled it, by 8 after 40, and so on."""
        return self.window + self.filled_calls**3 // 8000

    def record_send(self, now: float, in_flight: int) -> SentCall:
        """Count a call beside those in flight. Idle time doesn't raise the rate: it shows nothing about the limit."""
        if self.rate < math.inf:
            self.next_at = max(self.next_at, now - PACING_SLACK) + 1 / self.rate
            growth = min(max(GROWTH * self.rate, LEAST_GROWTH), MOST_GROWTH)
            self.rate += growth if self.rate >= self._plateau else 4 * growth
        self.requests.record_send(now)
        self.tokens.record_send(now)
        self.recent, self.recent_at = self._recent_at(now) + 1, now
        self.count += 1
        filled = self.most_in_flight <= in_flight
        after_pause, self.pause_was_asked = self.pause_was_asked, False
        return SentCall(now, self.count, filled, after_pause, self.id)

    def _known(self, call: SentCall) -> SentCall:
        """The call, without its number if it was counted elsewhere."""
        return call if call.learned == self.id else replace(call, number=0)

    def _recent_at(self, at: float) -> float:
        return self.recent * math.exp(min(self.recent_at - at, 0.0) / SPAN)

    # ------------------------------------------------------------------------------------------- learning

    def accept(self, call: SentCall, now: float, quota: Quota | None) -> None:
        """Learn from a call that was accepted, and from its headers."""
        if call.at > self.rejected_at:
            self.rejections = 0
            self.filled_calls += call.filled
        if now - self.rejected_at > MEMORY_SECONDS:
            self.rate = self.window = math.inf
            self.next_at, self.halved_at, self.rejected_at, self.rejection = 0.0, -math.inf, -math.inf, None
        if quota is not None:
            call, later = self._known(call), self.count - self._known(call).number
            self.requests.report(call, later, quota.requests_limit, quota.requests_left, quota.requests_full_in)
            self.tokens.report(call, later, quota.tokens_limit, quota.tokens_left, quota.tokens_full_in)

    def reject(self, call: SentCall, now: float, error: ProviderError, others: int) -> float:
        """Slow down once for all calls that were in flight, of which there are so many `others`.

        Returns the seconds until the next may be sent.
        """
        call, asked = self._known(call), error.retry_after
        self.rejection = Rejection(error.fault, error.provider, error.status)
        self.recent -= math.exp(min(call.at - self.recent_at, 0.0) / SPAN)
        self.trial.count(call, now)
        if call.at > self.rejected_at:
            self._change_pace(call, now, error, others)
        elif self.halved_at == self.rejected_at:
            self._halve(self.accepted - math.exp((call.at - self.rejected_at) / SPAN))
        if asked is not None and not self.trial.doubts_pauses:
            self.next_at = max(self.next_at, now + min(asked, MAX_PAUSE))
            self.pause_was_asked = True
        return self.next_at - now

    def _change_pace(self, call: SentCall, now: float, error: ProviderError, others: int) -> None:
        """Slow down, or return to the pace of before if it was slowed down in vain: that takes some calls to tell.

        Where calls are rejected even at long intervals while others are in flight, limit concurrency instead.
        """
        trial, asked = self.trial, error.retry_after is not None
        has_effect = trial.is_outage or trial.shows_effect or (asked and not trial.pauses_are_vain)
        is_rare = self._recent_at(now) < FEW_CALLS and self.rejections > 1
        if call.filled and self.window < math.inf:
            self.filled_calls = 0
            return
        if is_rare and others > 0 and error.fault == "rate_limited":
            self.window, self.filled_calls = others, 0
        elif self.halved_at == -math.inf or (trial.is_over and has_effect):
            self._slow_down(now, asked=asked)
        elif trial.is_over:
            self.rejected_at, self.rejections, self.trial = now, 0, trial.of_return(self.count)
            self.rate, self.window = max(self.rate_before, 2 * self.rate), math.inf
            return
        else:
            if not asked and trial.has_none_accepted and not trial.is_return:
                self._back_off(now)
            return
        self.rejected_at, self.trial = now, trial.after(self.count)
        if asked:
            self.rejections += 1
        else:
            self._back_off(now)

    def _slow_down(self, now: float, *, asked: bool) -> None:
        """Halve the accepted rate. In an outage, which doesn't show it, half of the rate so far is kept. Where the
        server asks for pauses, these lower the accepted rate too: a quarter is kept.
        """
        is_first, is_outage = self.halved_at == -math.inf, self.trial.is_outage
        kept = 0.0 if is_first else self.rate if is_outage else self.rate / 2 if asked else 0.0
        self.halved_at, self.rate_before, self.least = now, self.rate, max(kept, MIN_RATE)
        self._halve(self._recent_at(now) / SPAN)

    def _halve(self, accepted: float) -> None:
        self.accepted = accepted
        self.rate = max(self._plateau / 2, MIN_RATE)

    @property
    def _plateau(self) -> float:
        """The rate at which calls were accepted, as far as that is known."""
        return min(self.rate_before, max(self.accepted, self.least))

    def _back_off(self, now: float) -> None:
        """Pause all callers, for longer each time until a call is accepted."""
        self.rejections += 1
        self.next_at = max(self.next_at, now + with_jitter(backoff_after(self.rejections)))

    # -------------------------------------------------------------------------------------------- sharing

    def take_in(self, theirs: "Learned | None", now: float) -> "Learned":
        """Go on from what all processes know. Where that is nothing, learn anew what a call costs: until others say
        what they send, all that they use seems to be one's own.
        """
        if theirs is None:
            self.requests, self.tokens = QuotaBucket(least_cost=1, cost=1), QuotaBucket(least_cost=0, cost=0)
            return self
        if theirs.id != self.id:  # one's own calls count for the pace if nothing but its start is known
            own = self._recent_at(theirs.recent_at)
            theirs.recent += own
            if theirs.halved_at == theirs.rejected_at > -math.inf and theirs.rate_before == math.inf:
                theirs._halve(theirs.accepted + own)
        theirs.callers = {id: of for id, of in theirs.callers.items() if of.are_alive(now)}
        return theirs

    @property
    def latest(self) -> float:
        """The latest time in it."""
        return max(self.next_at, self.recent_at, self.rejected_at, self.requests.at, self.tokens.at)


def is_low(quota: Quota) -> bool:
    """Whether so much of a reported quota is used up that others should know."""
    parts = ((quota.requests_left, quota.requests_limit), (quota.tokens_left, quota.tokens_limit))
    return any(left is not None and limit and left < LOW_SHARE * limit for left, limit in parts)


def backoff_after(failures: int) -> float:
    """Seconds to wait after this many consecutive failures."""
    return min(INITIAL_BACKOFF * 2 ** (failures - 1), MAX_BACKOFF)


def with_jitter(seconds: float) -> float:
    """About as long, so that processes don't retry in step."""
    return seconds * random.uniform(0.75, 1.25)
