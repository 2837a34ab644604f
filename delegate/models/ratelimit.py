"""Keeps the calls to one model within its provider's rate limits, and repeats calls that failed by passing trouble.

This is the only place that repeats a call, as the outcome of each attempt allows. A failure of one call (a 5xx status,
a broken connection) delays only that call, with exponential backoff. Limits apply to all callers, and are learned from
responses. Until the first one, calls aren't delayed:

* a rejection (429, 503, 529) pauses all callers for as long as the server asks, or else with exponential backoff;
* it also halves the rate of calls or, if the rate isn't the cause, limits the number of concurrent calls;
* if as many calls are rejected at the lower rate as before, and even after the pauses that the server asks for, the
  rate isn't the cause: it returns to what it was, and only the rejected calls wait;
* rate-limit headers report what is left of a quota, and calls are spread out before it runs out.

What is learned is in `pacing`. The processes of a user share it, by `shared_limits`, as soon as there is a limit.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from secrets import token_hex
from typing import Self

from delegate._util import forking
from delegate._util.semaphore import FairSemaphore
from delegate.models.pacing import (
    MAX_CALLERS,
    MAX_PAUSE,
    Callers,
    Learned,
    SentCall,
    backoff_after,
    is_low,
    with_jitter,
)
from delegate.models.shared_limits import SharedLimits
from delegate.types.errors import ProviderError
from delegate.types.events import OnWait
from delegate.types.ports import Quota

RETRIES = 10
"""How often a call is repeated after a 5xx status or a broken connection: with backoff, over two and a half minutes. A
rate-limited call is repeated as long as its patience lasts."""
LONG_REPLY = 30.0
"""The seconds after which a reply that breaks off is repeated only a few times."""
SHORT_RETRIES = 2
"""How often a call is repeated after a response that broke off, after status 408 or 409, and to an address that never
answered."""
FIRST_RESEND, MAX_RESEND = 0.1, 1.0
"""Seconds before a rejected call is sent again where its rejection pauses no others. Doubles with each."""
POLL_SECONDS = 0.05
"""Seconds between two checks of the first waiting call, since its delay may change."""
ROUNDING = 1e-6
"""Seconds. Shorter delays are rounding errors."""
_ELSEWHERE = "the provider has rejected a call of another process"


class RateLimiter:
    """Delays the calls to one model at one endpoint. Shared by all its callers, on any event loop and thread.

    `clock` is the clock of the event loops, in seconds. `sleep` waits before a failed call is repeated. `shared` is the
    file by which processes share what they learn.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        shared: Path | None = None,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.RLock()  # re-entrant, since the garbage collector may finalize an abandoned call
        self._queue = FairSemaphore(1)
        self._own_in_flight = 0
        self._learned = Learned()
        self._error = ""
        """The text of the last rejection that this process got."""
        self._is_known = False
        """Whether a call was ever accepted."""
        self._path = shared
        self._shared = SharedLimits(shared, clock) if shared is not None else None
        self._id = token_hex(8)
        """Of this process, for the others."""
        forking.watch(self)

    def after_fork(self) -> None:
        """Start over: the calls in flight belong to the parent process."""
        RateLimiter.__init__(self, clock=self._clock, sleep=self._sleep, shared=self._path)

    def attempts(self, *, patience: float, on_wait: OnWait = nullcontext) -> "RateLimiter.Attempts":
        """The attempts of one call. Each is yielded when it may be sent. What `on_wait` returns is entered for each
        wait.

            async for attempt in limiter.attempts(patience=300):
                with attempt:
                    reply = await send()
                    attempt.accepted(reply.quota)
                    return reply

        If the block raises a rejection by the provider or another passing failure, another attempt follows; but if the
        wait for it would exceed the rest of `patience` seconds, the error is raised at once. All other errors
        propagate. One block makes one attempt, so that the call holds no resources while it waits.
        """
        return RateLimiter.Attempts(self, patience, on_wait)

    class Attempts:
        """Iterates over the attempts of one call. See `RateLimiter.attempts`."""

        def __init__(self, limiter: "RateLimiter", patience: float, on_wait: OnWait) -> None:
            self._limiter = limiter
            self._patience = patience
            self._on_wait = on_wait
            self._failures = self._resent = 0
            self._backoff = 0.0
            """Seconds to wait before the next attempt."""
            self._sent: SentCall

        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> Self:
            limiter = self._limiter
            if self._backoff:
                with self._on_wait("rate_limit"):
                    await limiter._sleep(self._backoff)
            arrived = limiter._clock()
            sent = None if limiter._queue.is_full else limiter._try_send(arrived)
            if sent is None:
                with self._on_wait("rate_limit"):
                    sent = await limiter._wait_to_send(arrived + self._patience)
                self._patience -= limiter._clock() - arrived
            self._sent = sent
            return self

        def accepted(self, quota: Quota | None) -> None:
            """Report that the provider accepted the call, with the quota that its headers reported."""
            self._limiter._accepted(self._sent, quota)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
            try:
                return isinstance(error, ProviderError) and self._is_repeated(error)
            finally:
                with self._limiter._exclusive():
                    self._limiter._own_in_flight -= 1

        def _is_repeated(self, error: ProviderError) -> bool:
            """Whether another attempt follows this error. If so, sets the wait before it."""
            self._backoff = 0.0
            pause = 0.0
            if error.fault in ("rate_limited", "overloaded"):
                pause = self._limiter._rejected(self._sent, error)
            if error.fault == "rate_limited":
                asked = min(error.retry_after or 0.0, MAX_PAUSE)
                if pause <= max(asked - ROUNDING, 0.0):  # others may go on
                    self._backoff = max(with_jitter(min(FIRST_RESEND * 2**self._resent, MAX_RESEND)), asked)
                    self._resent += 1
                    self._patience -= self._backoff
                return pause <= self._patience
            self._failures += 1
            took = self._limiter._clock() - self._sent.at
            if self._failures > _retries(error, took, is_known=self._limiter._is_known):
                return False
            backoff, asked = backoff_after(self._failures), error.retry_after or 0.0
            if max(backoff, asked, pause) > self._patience:
                return False
            # Without the jitter, so that the number of attempts doesn't depend on chance.
            self._patience -= max(backoff, asked)
            self._backoff = max(with_jitter(backoff), asked)
            return True

    # -------------------------------------------------------------------------------------------- waiting

    async def _wait_to_send(self, deadline: float) -> SentCall:
        """Wait for all earlier calls, then until this one may be sent."""
        if self._learned.next_at > deadline:
            return self._send_or_raise()
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline - self._clock()), self._queue:
                while (sent := self._try_send(now := self._clock())) is None:
                    if now + (wait := self._delay(now)) > deadline:
                        break
                    await asyncio.sleep(min(wait, POLL_SECONDS))
                else:
                    return sent
        return self._send_or_raise()

    def _send_or_raise(self) -> SentCall:
        """Out of patience: raise the last rejection. Without one, send the call despite what the quotas predict."""
        with self._exclusive():
            now, last = self._clock(), self._learned.rejection
            if last is None:
                return self._send(now)
            text, seconds = self._error or _ELSEWHERE, max(self._learned.next_at - now, 0.0)
            raise ProviderError(last.fault, text, provider=last.provider, status=last.status, retry_after=seconds)

    def _try_send(self, now: float) -> SentCall | None:
        """Count a call as sent if it may be sent now; otherwise return None."""
        with self._exclusive():
            return None if self._delay(now) > ROUNDING else self._send(now)

    def _send(self, now: float) -> SentCall:
        self._own_in_flight += 1
        return self._learned.record_send(now, self._in_flight)

    def _delay(self, now: float) -> float:
        """Seconds until the next call may be sent, by current knowledge."""
        window = 0.0 if self._in_flight < self._learned.most_in_flight else POLL_SECONDS
        return max(window, self._learned.delay(now))

    @property
    def _in_flight(self) -> int:
        """The calls in flight of all processes that share their limits."""
        callers = self._learned.callers
        return self._own_in_flight + sum(of.in_flight for id, of in callers.items() if id != self._id)

    # ------------------------------------------------------------------------------------------- learning

    def _accepted(self, sent: SentCall, quota: Quota | None) -> None:
        self._is_known = True
        if self._learned.rejection is not None or quota is not None:
            with self._exclusive(learns=quota is not None and is_low(quota)):
                self._learned.accept(sent, self._clock(), quota)

    def _rejected(self, sent: SentCall, error: ProviderError) -> float:
        """Slow down. Returns the seconds until the next call may be sent."""
        with self._exclusive(learns=True):
            self._error = str(error)
            return self._learned.reject(sent, self._clock(), error, self._in_flight - 1)

    @contextmanager
    def _exclusive(self, *, learns: bool = False) -> Generator[None]:
        """Inside, what was learned can be changed. Once a limit is known, or `learns`, it is that of all processes."""
        with self._lock:
            shared = self._shared
            if shared is None or not shared.is_wanted(learns=learns):
                yield
                return
            with shared.locked() as is_locked:
                if is_locked:
                    self._learned = self._learned.take_in(shared.read(), self._clock())
                yield
                if is_locked:
                    self._pass_on(shared)

    def _pass_on(self, shared: SharedLimits) -> None:
        """Tell the other processes, as long as there is something to tell."""
        now, learned = self._clock(), self._learned
        learned.callers.pop(self._id, None)
        if self._own_in_flight and len(learned.callers) < MAX_CALLERS:
            learned.callers[self._id] = Callers(os.getpid(), self._own_in_flight, now)
        shared.write(learned if learned.is_limited(now) else None)


def _retries(error: ProviderError, took: float, *, is_known: bool) -> int:
    """How often a call is repeated after this error, which came after `took` seconds, except for a rate limit.

    `is_known` is whether the endpoint answered before: an address that never did is more likely wrong than down.
    """
    if error.final or error.outcome in ("rejected", "left_waiting", "answered"):
        return 0
    # Of what broke off, only a response has a status. One that took long costs much, and may be cut off every time.
    has_begun = error.outcome == "broken_off" and error.status is not None and took > LONG_REPLY
    is_unreachable = error.outcome == "not_sent" and not is_known
    return SHORT_RETRIES if has_begun or is_unreachable or error.status in (408, 409) else RETRIES
