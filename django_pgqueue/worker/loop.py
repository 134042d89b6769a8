"""The one loop that claims and ends: everything a worker writes to jobs, but for heartbeats, goes through here."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..connections import adopt, close_all, discard, is_about_data, keep_statements, retry_conflicts, sqlstate
from ..context import Holding
from ..leases import Lease, ready_queues
from ..log import logger
from ..outcomes import Ended, Ending, released
from ..states import Verdict
from ..upkeep import Promote
from .announcer import Announcer
from .claimer import Claimer
from .completer import Accepted, Completer
from .outage import Outage
from .pool import Pool
from .prefetch import LONGEST_WAIT_SECONDS, Prefetch
from .registry import Registry
from .selection import Selection
from .settings import WorkerSettings

SHORTEST_PAUSE = 0.005
UNDEFINED_TABLE = "42P01"
LONGEST_LOCKED_PAUSE = 0.25
TIMEOUT_PAUSE = 0.25
# How long rows that somebody has locked are asked to be given back, after the shutdown timeout.
LAST_TRY_SECONDS = 1.0


class Loop:
    """Each cycle ends in one transaction whatever has ended, and claims as many jobs as there are free slots.

    It runs on a thread of its own, never on the main thread, so that no signal can break into a commit.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        pool: Pool,
        registry: Registry,
        announcer: Announcer,
        wake: threading.Event,
        stopping: threading.Event,
        timed_out: Callable[[Holding], Ending],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._registry = registry
        self._announcer = announcer
        self._wake = wake
        self._stopping = stopping
        self._timed_out = timed_out
        self._has_timeouts = False
        self._completer = Completer(using=settings.using)
        self._selection = Selection(
            settings.queues, settings.excluded, look_up=lambda: ready_queues(using=settings.using)
        )
        self._claimer = Claimer(settings, queues=self._selection, held=registry.keys)
        self._prefetch = Prefetch(settings.concurrency)
        self._claimed = 0
        self._pause = SHORTEST_PAUSE
        self._uncertain = False
        self._outage = Outage()
        self._give_up_at: float | None = None
        self._leave_at: float | None = None
        self._has_worked = False
        self.fatal: str | None = None
        self.tried = threading.Event()  # the first cycle is over, however it went
        self.busy_since: float | None = None
        self.connection: BaseDatabaseWrapper | None = None

    def run(self) -> None:
        """Cycle until stopped and drained; the body of the thread."""
        self.connection = adopt(self._settings.using, name=f"pgqueue {self._settings.id} loop")
        try:
            while not self._is_finished():
                self._guarded_cycle()
                if not self._is_finished() and self._wake.wait(self._pause * random.uniform(0.9, 1.1)):
                    self._pause = SHORTEST_PAUSE  # whoever woke it may have more: poll fast for a while
                self._wake.clear()
        finally:
            close_all()

    def hint(self) -> None:
        """Look for jobs now: somebody says that there are some. For any thread."""
        self._selection.hint()
        self._wake.set()

    def _is_finished(self) -> bool:
        if not self._stopping.is_set():
            return False
        if self._give_up_at is None:
            self._give_up_at = time.monotonic() + self._settings.shutdown_timeout.total_seconds()
        gone = len(self._registry) == 0
        # With the database away, or the rows locked, what cannot be written by now is left to the leases.
        late = self._leave_at is not None and time.monotonic() > self._leave_at
        return gone or late or (self._outage.is_on and time.monotonic() > self._give_up_at)

    def _guarded_cycle(self) -> None:
        self.busy_since = time.monotonic()
        try:
            if connections[self._settings.using].connection is None:
                keep_statements(self._settings.using)
            self._cycle()
            self._outage.over()
            self._has_worked = True
        except (DatabaseError, InterfaceError) as error:
            self._uncertain = True  # the commit of a claim may have succeeded
            if sqlstate(error) == UNDEFINED_TABLE and not self._has_worked:
                self.fatal = (
                    f"The queue's tables are missing in database {self._settings.using!r}: "
                    f"run manage.py migrate --database={self._settings.using}"
                )
                self._stopping.set()
            else:
                self._pause = self._outage.note(error)
            discard(self._settings.using)
            self.connection = connections[self._settings.using]
        finally:
            self.busy_since = None
            self.tried.set()

    def _cycle(self) -> None:
        if self._stopping.is_set():
            self._give_back()
        elif self._pool.longest_wait() > LONGEST_WAIT_SECONDS:
            self._prefetch.stall()
            self._give_back_unstarted()
        if self._uncertain:
            self._adopt_orphans()
        self._end_overdue()
        endings = self._registry.take_endings()
        sent_at = time.monotonic()
        try:
            accepted, leases = self._exchange(endings)
        except BaseException:
            self._registry.put_back(endings)
            raise
        self._take_accepted(endings, accepted)  # first: receivers shall not wait for the end of the next jobs
        self._start(leases, sent_at)
        self._settle_rest(endings, accepted)
        busy = bool(leases) or bool(accepted)
        self._pause = self._next_pause(busy)
        if self._settings.batch and not busy and self._nothing_is_due():
            self._stopping.set()
        if self._has_started_enough():
            self._stopping.set()

    def _exchange(self, endings: list[Ending]) -> tuple[Accepted, list[Lease]]:
        """End the finished and claim the next in one transaction: one commit per cycle."""
        room = self._room()
        if not endings and not room:
            return {}, []
        try:
            return retry_conflicts(lambda: self._exchange_once(endings, room))
        except DatabaseError as error:
            if not endings or not is_about_data(error):
                raise
            return self._completer.end_singly(endings), []

    def _exchange_once(self, endings: list[Ending], room: int) -> tuple[Accepted, list[Lease]]:
        with transaction.atomic(using=self._settings.using):
            accepted = self._completer.end(endings)
            leases = self._claimer.take(room)
        return accepted, leases

    def _room(self) -> int:
        if self._stopping.is_set():
            return 0
        self._prefetch.note(*self._pool.take_measure())
        room = self._pool.free + self._prefetch.size
        if self._settings.max_tasks is not None:
            room = min(room, self._settings.max_tasks - self._claimed)
        return room

    def _start(self, leases: list[Lease], sent_at: float) -> None:
        self._claimed += len(leases)
        self._pool.submit(self._hold(leases, sent_at))

    def _hold(self, leases: list[Lease], sent_at: float) -> list[Holding]:
        holdings = [
            Holding(lease, sent_at=sent_at, stopping=self._stopping, using=self._settings.using)
            for lease in leases
        ]
        self._registry.add(holdings)
        return holdings

    def _take_accepted(self, endings: list[Ending], accepted: Accepted) -> None:
        through = [ending for ending in endings if ending.lease.key in accepted]
        self._take(self._completer.settle(through, accepted))

    def _settle_rest(self, endings: list[Ending], accepted: Accepted) -> None:
        """Take the other verdicts; an ending that cannot be judged now is asked again."""
        rest = [ending for ending in endings if ending.lease.key not in accepted]
        try:
            replies = self._completer.settle(rest, accepted)
        except BaseException:
            self._registry.put_back(rest)
            raise
        self._registry.put_back([reply.ending for reply in replies if reply.busy])
        self._take([reply for reply in replies if not reply.busy])

    def _take(self, replies: Sequence[Ended]) -> None:
        self._registry.forget([reply.ending.lease for reply in replies])
        for reply in replies:
            if reply.verdict in (Verdict.ACCEPTED, Verdict.ALREADY_ACCEPTED):
                self._announcer.announce(reply)

    def _adopt_orphans(self) -> None:
        """Hold, and give back, the claims whose reply was lost."""
        sent_at = time.monotonic()
        found = self._claimer.orphans()
        self._uncertain = False
        for holding in self._hold(found, sent_at):
            self._registry.end(holding, released(holding.lease))

    def _give_back(self) -> None:
        """Release what no thread has begun; after the shutdown timeout also what is still running."""
        self._give_back_unstarted()
        if self._give_up_at is not None and time.monotonic() >= self._give_up_at:
            for holding in self._registry.holdings():
                if self._registry.end(holding, released(holding.lease)):
                    _log_cut(holding.lease)
            if self._leave_at is None:
                self._leave_at = time.monotonic() + LAST_TRY_SECONDS

    def _end_overdue(self) -> None:
        self._has_timeouts = False
        for holding in self._registry.holdings():
            if holding.is_overdue:
                self._registry.end(holding, self._timed_out(holding))
                self._pool.abandon(holding)
            self._has_timeouts = self._has_timeouts or holding.timeout is not None

    def _has_started_enough(self) -> bool:
        """Whether --max-tasks jobs were started: what still waits for a slot would be given back by a stop."""
        most = self._settings.max_tasks
        return most is not None and self._claimed >= most and not self._pool.longest_wait()

    def _give_back_unstarted(self) -> None:
        for holding in self._pool.take_unstarted():
            self._claimed -= 1
            self._registry.end(holding, released(holding.lease))

    def _next_pause(self, busy: bool) -> float:
        """Poll again at once after work, then less and less often, up to the interval."""
        if busy:
            return SHORTEST_PAUSE
        longest = self._settings.interval.total_seconds()
        if self._has_timeouts:
            longest = min(longest, TIMEOUT_PAUSE)
        if self._pool.free < 0:  # jobs wait for a slot, and not for long
            longest = min(longest, LONGEST_WAIT_SECONDS / 2)
        if self._registry.has_endings:  # rows that somebody has locked
            longest = min(longest, LONGEST_LOCKED_PAUSE)
        if self._give_up_at is not None and self._leave_at is None:
            longest = min(longest, max(self._give_up_at - time.monotonic(), SHORTEST_PAUSE))
        return min(self._pause * 2, longest)

    def _nothing_is_due(self) -> bool:
        if len(self._registry) or self._registry.has_endings or self._room() <= 0:
            return False
        return Promote(using=self._settings.using).run_once() == 0


def _log_cut(lease: Lease) -> None:
    logger.warning(
        "Job %s (%s): still running at the shutdown timeout; given back",
        lease.job_id,
        lease.task,
        extra={
            "event": "given_back",
            "job_id": lease.job_id,
            "generation": lease.generation,
            "task": lease.task,
            "queue": lease.queue,
            "worker": lease.worker,
        },
    )
