"""What a scenario is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stage import Stage


class Skip(Exception):
    """Raised by a scenario that cannot run here; its text is the reason, and the evidence says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One story: `run` tells it on a stage. `by_default` False: only when it is named."""

    name: str
    title: str
    group: str
    run: Callable[[Stage], None]
    by_default: bool = True


class Scenarios:
    """The scenarios of one module, in the order in which they stand."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.all: list[Scenario] = []

    def add(
        self, name: str, title: str, *, by_default: bool = True
    ) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
        """Decorate a function that tells a scenario."""

        def wrap(run: Callable[[Stage], None]) -> Callable[[Stage], None]:
            self.all.append(
                Scenario(name=name, title=title, group=self.group, run=run, by_default=by_default)
            )
            return run

        return wrap
