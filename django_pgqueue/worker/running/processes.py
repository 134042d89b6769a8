"""The pool `processes`: jobs run in child processes, the parent runs none of their code."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from ...holding import Holding
from ...log import logger
from ...outcomes import Ending, Settled
from .child_process import ChildProcess
from .execution import Execution
from .messages import Announce, Completed, News, OwnOptions, Result, Returned, Run, Word
from .spawn import ChildSettings, spawn

TICK_SECONDS = 0.25
MOST_AT_ONCE = 16
SHORT_JOB_SECONDS = 0.005
SHORTEST_LIFE_SECONDS = 2.0
LONGEST_RESPAWN_PAUSE = 30.0
LAST_WORDS_SECONDS = 5.0


class ProcessPool:
    """`size` children; the same face as the pool of threads.

    A child that dies ends only the attempt it was in, at once, as `crashed`; what it had not begun is given
    to another one, and a new child takes its place. One thread does all the talking.
    """

    def __init__(
        self,
        size: int,
        *,
        child: ChildSettings,
        execution: Execution,
        ended: Callable[[Holding, Ending | None], object],
        on_options: Callable[[Holding], object],
        wake: Callable[[], object],
    ) -> None:
        self._size = size
        self._child = child
        self._execution = execution
        self._ended = ended
        self._on_options = on_options
        self._wake = wake
        self._lock = threading.RLock()  # of what stands below: shared by the loop and this pool's thread
        self._waiting: deque[Holding] = deque()
        self._members: list[ChildProcess] = []
        self._announcements: deque[Settled] = deque()
        self._ran = 0
        self._seconds = 0.0
        self._mean: float | None = None
        self._early_deaths = 0
        self._spawn_at = 0.0
        self._stopping = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(target=self._serve, name="pgqueue-children", daemon=True)

    def start(self) -> None:
        """Start the thread, which starts the children."""
        self._thread.start()

    @property
    def free(self) -> int:
        """How many more jobs there is a child for; children that are still starting do not count."""
        with self._lock:
            ready = sum(member.ready for member in self._members)
            return ready - sum(len(member.given) for member in self._members) - len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """No: a child that is in a job is killed at the end, so that there is nothing to wait for."""
        return False

    def take_measure(self) -> tuple[int, float]:
        """Return how many jobs have ended since the last call, and for how many seconds they ran in all."""
        with self._lock:
            measure = self._ran, self._seconds
            self._ran, self._seconds = 0, 0.0
            return measure

    def longest_wait(self) -> float:
        """Return for how many seconds the first waiting job has waited for a child."""
        with self._lock:
            since = [holding.held_since for holding in self._waiting]
            since += [holding.held_since for member in self._members for holding in list(member.given)[1:]]
            return time.monotonic() - min(since) if since else 0.0

    def submit(self, holdings: Sequence[Holding]) -> None:
        """Run these jobs as children become free."""
        with self._lock:
            self._waiting.extend(holdings)
        self._poke()

    def take_unstarted(self) -> list[Holding]:
        """Return the jobs that no child was given, which then will not run."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def announce(self, settled: Settled) -> None:
        """Let a child tell receivers of signals that a job has ended."""
        with self._lock:
            self._announcements.append(settled)
        self._poke()

    def abandon(self, holding: Holding) -> None:
        """Kill the child that is in a job which has run for too long; its ending is decided already."""
        with self._lock:
            for member in self._members:
                if member.given and member.given[0] is holding:
                    holding.fate.abandoned = True
                    member.killed_in = holding
                    member.process.kill()

    def stop(self, timeout: float) -> None:
        """Let the children leave, wait up to `timeout` seconds for them, and kill those that stay."""
        with self._lock:
            self._stopping = True
            members = list(self._members)
        self._poke()
        self._thread.join(timeout + TICK_SECONDS)
        until = time.monotonic() + LAST_WORDS_SECONDS
        for member in members:
            idle = member.ready and not member.given  # it tells receivers of the last ends, and leaves
            member.end(max(until - time.monotonic(), 0.0) if idle else timeout / len(members))

    def _poke(self) -> None:
        with suppress(OSError):  # full: a wake-up is on its way
            os.write(self._writer, b"!")

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._populate()
                self._hand_out()
                self._tell_news()
                if self._stopping:
                    for member in self._members:
                        member.say(Word.STOP)
                    return
            self._wait()

    def _wait(self) -> None:
        pipes = {member.pipe: member for member in self._members}
        for ready in wait([self._reader, *pipes], TICK_SECONDS):
            if ready == self._reader:
                os.read(self._reader, 4096)
            else:
                self._hear(pipes[ready])  # type: ignore[index]
        for member in [one for one in self._members if one.process.exitcode is not None]:
            self._hear(member)  # its pipe does not end while a process that the job started has it too

    def _populate(self) -> None:
        while len(self._members) < self._size and time.monotonic() >= self._spawn_at and not self._stopping:
            try:
                self._members.append(ChildProcess(*spawn(self._child)))
            except OSError as error:  # no more processes, files or memory for now
                logger.error("A child process could not be started: %s", error)
                self._spawn_at = time.monotonic() + SHORTEST_LIFE_SECONDS

    def _hand_out(self) -> None:
        idle = [member for member in self._members if member.ready and not member.given]
        while self._announcements and idle:
            idle[-1].say(Announce(settled=self._announcements.popleft()))
        for member in idle:
            if not self._waiting:
                return
            count = self._share(len(idle))
            batch = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
            member.given.extend(batch)
            batch[0].run.started = time.monotonic()
            member.say(
                Run(
                    leases=[holding.lease for holding in batch],
                    sent_at=min(holding.held_since for holding in batch),
                )
            )

    def _share(self, idle: int) -> int:
        """Several short jobs at once spare the talk; a long one must not stand in front of others."""
        if self._mean is None or self._mean > SHORT_JOB_SECONDS:
            return 1
        return max(1, min(MOST_AT_ONCE, len(self._waiting) // idle))

    def _tell_news(self) -> None:
        for member in self._members:
            for holding in member.given:
                news = News(
                    key=holding.lease.key,
                    deadline=holding.trust.deadline,
                    lost=holding.trust.lost,
                    cancel_requested=holding.trust.cancel_requested,
                    stopping=holding.stopping.is_set(),
                )
                if news != member.told.get(news.key):
                    member.told[news.key] = news
                    member.say(news)
            member.ask_back()

    def _hear(self, member: ChildProcess) -> None:
        gone = member.process.exitcode is not None  # asked first: what it said last is in the pipe by then
        try:
            while member.pipe.poll():
                self._heed(member, member.pipe.recv())
        except (EOFError, OSError):
            gone = True
        if gone:
            self._bury(member)

    def _heed(self, member: ChildProcess, message: Any) -> None:
        head = member.given[0] if member.given else None
        match message:
            case Result():
                self._finish(member, message)
            case Word.READY:
                with self._lock:
                    member.ready = True
                self._wake()
            case Returned():
                self._take_back(member, message)
            case Completed() if head is not None and head.lease.key == message.key:
                head.run.result = message.result
                head.run.completed = True
            case OwnOptions() if head is not None and head.lease.key == message.key:
                head.lease = head.lease._replace(duration=message.duration, fencing=message.fencing)
                head.run.timeout = message.timeout
                head.run.retry, head.run.no_retry = message.retry, message.no_retry
                self._on_options(head)

    def _take_back(self, member: ChildProcess, message: Returned) -> None:
        with self._lock:
            back = [holding for holding in member.given if holding.lease.key in message.keys]
            member.given = deque(holding for holding in member.given if holding not in back)
            for holding in back:
                member.told.pop(holding.lease.key, None)
            self._waiting.extendleft(reversed(back))
        self._wake()

    def _finish(self, member: ChildProcess, message: Result) -> None:
        with self._lock:
            if not member.given or member.given[0].lease.key != message.key:
                return
            holding = member.given.popleft()
            member.told.pop(message.key, None)
            if member.given:
                member.given[0].run.started = time.monotonic()
            self._ran += 1
            self._seconds += message.seconds
            mean = self._mean
            self._mean = message.seconds if mean is None else mean + (message.seconds - mean) * 0.1
        ending = message.ending
        if ending is not None:
            ending = ending._replace(lease=holding.lease)
        self._ended(holding, ending)

    def _bury(self, member: ChildProcess) -> None:
        """End the attempt that a dead child was in, and give what it had not begun to others."""
        member.end(TICK_SECONDS)
        member.hang_up()
        with self._lock:
            self._members.remove(member)
            victim = member.given.popleft() if member.given else None
            self._waiting.extendleft(reversed(member.given))
            lived = time.monotonic() - member.born_at
            self._early_deaths = self._early_deaths + 1 if lived < SHORTEST_LIFE_SECONDS else 0
            pause = min(0.1 * 2**self._early_deaths, LONGEST_RESPAWN_PAUSE) if self._early_deaths > 1 else 0.0
            self._spawn_at = time.monotonic() + pause
        how = f"the process that ran the job ended with exit code {member.process.exitcode}"
        logger.warning("A child process ended with exit code %s", member.process.exitcode)
        if victim is not None and victim.run.completed:
            self._ended(victim, Ending.done(victim.lease, victim.run.result))
        elif victim is not None and member.killed_in not in (None, victim):
            # It was killed for the job before it, which had just ended.
            self._ended(victim, Ending.released(victim.lease))
        elif victim is not None and not victim.fate.abandoned:
            self._ended(victim, self._execution.crashed(victim, how))
        self._wake()
