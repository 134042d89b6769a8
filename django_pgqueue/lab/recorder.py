"""What a scenario did and saw, shown live and kept for the evidence."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Any

WIDTH = 108
INDENT = "    "


@dataclass(slots=True, kw_only=True)
class Log:
    """Everything about one scenario. `steps` is stable between runs; `figures`, `seconds` and `logs` are not."""

    name: str
    title: str
    group: str
    verdict: str = "passed"
    reason: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class Recorder:
    """Writes one scenario's steps. `names` maps what differs from run to run to what stands for it."""

    def __init__(self, log: Log, out: IO[str], *, pause: Callable[[], None] | None = None) -> None:
        self.log = log
        self.names: dict[str, str] = {}
        self._out = out
        self._pause = pause
        self._began = time.monotonic()

    def ask(self, session: str, statement: str) -> None:
        """Show a statement before it runs; with --step, wait for a key."""
        self._show(f"{session}> {squeeze(statement)}")
        if self._pause:
            self._pause()

    def statement(self, session: str, statement: str, reply: object) -> None:
        """Keep a statement with its reply."""
        self._show(f"{INDENT}= {_brief(reply)}")
        self._keep(kind="statement", session=session, text=squeeze(statement), reply=reply)

    def call(self, text: str, reply: object) -> None:
        """Keep a call of the package with its reply."""
        self._show(f"  {text}")
        self._show(f"{INDENT}= {_brief(reply)}")
        self._keep(kind="call", text=text, reply=reply)

    def event(self, text: str) -> None:
        """Keep something that was done to a process, a connection or a server, or a fact that was awaited."""
        self._show(f"* {text}")
        self._keep(kind="event", text=text)

    def check(self, text: str, holds: bool, seen: object = None) -> bool:
        """Keep an assertion; one that does not hold fails the scenario, which still goes on."""
        self._show(
            f"{'  held: ' if holds else '  DID NOT HOLD: '}{text}"
            + ("" if holds else f"; seen: {_brief(seen)}")
        )
        step: dict[str, Any] = {"kind": "assertion", "text": text, "holds": holds}
        self._keep(**step, **({} if holds else {"seen": seen}))
        if not holds:
            self.log.verdict = "failed"
        return holds

    def figure(self, name: str, value: object) -> None:
        """Keep a number that differs from run to run."""
        self._show(f"  {name}: {value}")
        self.log.figures[name] = value

    def note(self, text: str) -> None:
        """Show a line that is not kept."""
        self._show(text)

    def _keep(self, **step: Any) -> None:
        self.log.steps.append(json.loads(self.normal(json.dumps(step, default=str))))
        now = time.monotonic()
        self.log.step_seconds.append(round(now - self._began, 4))
        self._began = now

    def normal(self, text: str) -> str:
        """Replace what differs from run to run: names given in `names`, suffixes of worker ids, times."""
        for given, instead in self.names.items():
            text = text.replace(given, instead)
        for pattern, instead in _VOLATILE:
            text = pattern.sub(instead, text)
        return text

    def _show(self, text: str) -> None:
        for line in text.splitlines():
            for part in _wrapped(line):
                self._out.write(f"  {part}\n")
        self._out.flush()


_VOLATILE: Iterable[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:?\d\d|Z)?"), "<time>"),
    (re.compile(r"\b(worker-\w+?)-[0-9a-f]{8}\b"), r"\1"),
)


def squeeze(statement: str) -> str:
    """Put a statement on one line."""
    return " ".join(statement.split())


def _brief(reply: object) -> str:
    text = reply if isinstance(reply, str) else json.dumps(reply, default=str, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


def _wrapped(text: str) -> Iterable[str]:
    while len(text) > WIDTH:
        cut = text.rfind(" ", 20, WIDTH)
        cut = cut if cut > 0 else WIDTH
        yield text[:cut]
        text = f"{INDENT}{text[cut:].lstrip()}"
    yield text
