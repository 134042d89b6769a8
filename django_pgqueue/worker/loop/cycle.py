"""The one loop that claims and ends: everything a worker writes to jobs, but for heartbeats, goes through here."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from django.db import DatabaseError, connections, transaction

from ...connections import keep_statements
from ...faults import is_about_data, retry_conflicts, sqlstate
from ...holding import Holding
from ...lease import Lease
from ...outcomes import Accepted, Ending, Settled, end, end_singly, settle
from ...states import Verdict
from ...upkeep import promote
from ..running.execution import Execution
from ..running.pool import Pool
from ..service import Service
from ..services.announcer import Announcer
from ..settings import WorkerSettings
from .claimer import Claimer
from .drain import Drain
from .outage import Outage
from .pace import LONGEST_WITH_LOCKED_ROWS, LONGEST_WITH_TIMEOUTS, SHORTEST_SECONDS, Pace
from .prefetch import LONGEST_WAIT_SECONDS, Prefetch
from .registry import Registry

UNDEFINED_TABLE = "42P01"


class Cycle:
    """Each cycle ends in one transaction whatever has ended, and claims as many jobs as there are free slots.

    It runs on a thread of its own, never on the main thread, so that no signal can break into a commit.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        service: Service,
        registry: Registry,
        pool: Pool,
        execution: Execution,
        announcer: Announcer,
        stopping: threading.Event,
    ) -> None:
        self.service = service
        self._settings = settings
        self._using = settings.using
        self._registry = registry
        self._pool = pool
        self._execution = execution
        self._announcer = announcer
        self._stopping = stopping
        self._claimer = Claimer(settings, registry)
        self._prefetch = Prefetch(settings.concurrency)
        self._drain = Drain(settings.shutdown_timeout.total_seconds(), registry=registry, pool=pool)
        self._pace = Pace(settings.interval.total_seconds())
        self._outage = Outage()
        self._claimed = 0
        self._has_timeouts = False
        self._has_worked = False
        self._is_uncertain = False  # the commit of a claim may have succeeded without a reply
        # Written by the loop, read by the worker.
        self.fatal: str | None = None
        self.tried = threading.Event()  # the first cycle is over, however it went

    def run(self) -> None:
        """Cycle until stopped and drained; the body of the thread."""
        with self.service.session():
            while not self._is_finished():
                self._note(self.service.attempt(self._cycle))
                self.tried.set()
                if not self._is_finished() and self.service.woken.wait(self._pace.seconds):
                    self._pace.quicken()  # whoever woke it may have more
                self.service.woken.clear()

    def hint(self) -> None:
        """Look for jobs now: somebody says that there are some. For any thread."""
        self._claimer.hint()
        self.service.woken.set()

    def _is_finished(self) -> bool:
        return self._stopping.is_set() and self._drain.is_over(during_outage=self._outage.is_on)

    def _note(self, error: Exception | None) -> None:
        if error is None:
            self._outage.over()
            self._has_worked = True
            return
        self._is_uncertain = True
        if sqlstate(error) == UNDEFINED_TABLE and not self._has_worked:
            self.fatal = (
                f"The queue's tables are missing in database {self._using!r}: "
                f"run manage.py migrate --database={self._using}"
            )
            self._stopping.set()
        else:
            self._pace.rest(self._outage.note(error))

    def _cycle(self) -> None:
        if connections[self._using].connection is None:
            keep_statements(self._using)
        self._give_back()
        self._end_overdue()
        endings = self._registry.take_endings()
        sent_at = time.monotonic()
        try:
            accepted, leases = self._exchange(endings)
        except BaseException:
            self._registry.put_back(endings)
            raise
        # First: receivers shall not wait for the end of the next jobs.
        self._conclude_accepted(endings, accepted)
        self._start(leases, sent_at)
        self._conclude_rest(endings, accepted)
        self._decide_on_next(is_busy=bool(leases) or bool(accepted))

    def _give_back(self) -> None:
        """Release what this worker shall not run: at the end all, else what has waited too long, or is an orphan."""
        if self._stopping.is_set():
            self._claimed -= self._drain.give_back()
        elif self._pool.longest_wait() > LONGEST_WAIT_SECONDS:
            self._prefetch.stall()
            self._claimed -= self._drain.give_back_unstarted()
        if self._is_uncertain:
            sent_at = time.monotonic()
            orphans = self._claimer.orphans()
            self._is_uncertain = False
            for holding in self._hold(orphans, sent_at):
                self._registry.end(holding, Ending.released(holding.lease))

    def _end_overdue(self) -> None:
        self._has_timeouts = False
        for holding in self._registry.holdings():
            if holding.is_overdue:
                self._registry.end(holding, self._execution.timed_out(holding))
                self._pool.abandon(holding)
            self._has_timeouts = self._has_timeouts or holding.run.timeout is not None

    def _exchange(self, endings: list[Ending]) -> tuple[Accepted, list[Lease]]:
        """End the finished and claim the next in one transaction: one commit per cycle."""
        free = self._free_slots()
        if not endings and not free:
            return {}, []
        try:
            return retry_conflicts(lambda: self._exchange_once(endings, free))
        except DatabaseError as error:
            if not endings or not is_about_data(error):
                raise
            return end_singly(endings, using=self._using), []

    def _exchange_once(self, endings: list[Ending], free: int) -> tuple[Accepted, list[Lease]]:
        with transaction.atomic(using=self._using):
            accepted = end(endings, using=self._using)
            leases = self._claimer.claim(free)
        return accepted, leases

    def _free_slots(self) -> int:
        """Return how many jobs to claim: the free slots and the prefetch, at most what --max-tasks leaves."""
        if self._stopping.is_set():
            return 0
        self._prefetch.note(*self._pool.take_measure())
        free = self._pool.free + self._prefetch.size
        if self._settings.max_tasks is not None:
            free = min(free, self._settings.max_tasks - self._claimed)
        return free

    def _start(self, leases: list[Lease], sent_at: float) -> None:
        self._claimed += len(leases)
        self._pool.submit(self._hold(leases, sent_at))

    def _hold(self, leases: list[Lease], sent_at: float) -> list[Holding]:
        holdings = [
            Holding(lease, sent_at=sent_at, stopping=self._stopping, using=self._using) for lease in leases
        ]
        self._registry.add(holdings)
        return holdings

    def _conclude_accepted(self, endings: list[Ending], accepted: Accepted) -> None:
        through = [ending for ending in endings if ending.lease.key in accepted]
        self._conclude(settle(through, accepted, using=self._using))

    def _conclude_rest(self, endings: list[Ending], accepted: Accepted) -> None:
        """Take the other verdicts; an ending that cannot be judged now is asked again."""
        rest = [ending for ending in endings if ending.lease.key not in accepted]
        try:
            replies = settle(rest, accepted, using=self._using)
        except BaseException:
            self._registry.put_back(rest)
            raise
        self._registry.put_back([reply.ending for reply in replies if reply.busy])
        self._conclude([reply for reply in replies if not reply.busy])

    def _conclude(self, replies: Sequence[Settled]) -> None:
        """Forget leases that have their verdicts, and announce what ended."""
        self._registry.forget([reply.ending.lease for reply in replies])
        for reply in replies:
            if reply.verdict in (Verdict.ACCEPTED, Verdict.ALREADY_ACCEPTED):
                self._announcer.announce(reply)

    def _decide_on_next(self, *, is_busy: bool) -> None:
        """Set the pace of the next cycle, or stop: a batch with nothing left, --max-tasks jobs started."""
        if is_busy:
            self._pace.quicken()
        else:
            self._pace.slow(
                LONGEST_WITH_TIMEOUTS if self._has_timeouts else None,
                LONGEST_WAIT_SECONDS / 2 if self._pool.free < 0 else None,  # jobs wait for a slot
                LONGEST_WITH_LOCKED_ROWS if self._registry.has_endings else None,
                self._drain.seconds_left(SHORTEST_SECONDS),
            )
        if self._settings.batch and not is_busy and self._nothing_is_due():
            self._stopping.set()
        if self._has_started_enough():
            self._stopping.set()

    def _nothing_is_due(self) -> bool:
        if len(self._registry) or self._registry.has_endings or self._free_slots() <= 0:
            return False
        return promote(using=self._using) == 0

    def _has_started_enough(self) -> bool:
        """Whether --max-tasks jobs were started: what still waits for a slot would be given back by a stop."""
        most = self._settings.max_tasks
        return most is not None and self._claimed >= most and not self._pool.longest_wait()
