"""What the demo shows: live progress on a terminal, plain lines elsewhere, tables at the end."""

import time
from typing import IO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from testproject.shop.models import Receipt

from .cast import Cast

PLAIN_WIDTH = 110


class Screen:
    """Use it as a context manager: leaving takes the progress bar away."""

    def __init__(self, file: IO[str]) -> None:
        self.console = Console(file=file, highlight=False)
        if not self.console.is_terminal:
            self.console.width = PLAIN_WIDTH
        self._began = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("jobs done"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._bar = self._progress.add_task("preparing", total=None)

    def __enter__(self) -> "Screen":
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print one line of the story, with the seconds since it began."""
        self.console.print(f"[dim]{time.monotonic() - self._began:5.1f} s[/]  {text}")
        self._progress.update(self._bar, description=text.split(":")[0])

    def count(self, done: int, total: int) -> None:
        """Move the bar."""
        self._progress.update(self._bar, completed=done, total=total)

    def show(self, cast: Cast) -> None:
        """Print the tables of jobs and of refused writes."""
        self.console.print(_jobs(cast), _rejections(cast))

    def conclude(self, facts: list[tuple[str, bool]]) -> None:
        """Print what held and what did not."""
        for fact, holds in facts:
            self.console.print(
                f"  [green]held[/]  {fact}" if holds else f"  [bold red]DID NOT HOLD  {fact}[/]"
            )


def _jobs(cast: Cast) -> Table:
    columns = (
        "order",
        "job",
        "state",
        "generation",
        "attempts",
        "workers",
        "refused",
        "receipts",
        "mails",
    )
    table = Table(*columns, title="Jobs")
    mailed, dropped = cast.mailed(), cast.dropped()
    for order, job in zip(cast.orders, cast.jobs(), strict=True):
        subject = f"Your receipt for order {order.number}"
        table.add_row(
            order.number,
            str(job.pk),
            job.state,
            str(job.generation),
            f"{job.attempts} of {job.max_attempts}",
            " ".join(name.rpartition("-")[0] for name in job.worker_ids),
            str(cast.rejections().filter(job_id=job.pk).count()),
            str(Receipt.objects.filter(order=order).count()),
            _mails(mailed.count(subject), dropped.count(subject)),
            style="bold yellow" if job.pk == cast.slow_job_id else None,
        )
    return table


def _mails(delivered: int, dropped: int) -> str:
    return f"{delivered} ({dropped} dropped)" if dropped else str(delivered)


def _rejections(cast: Cast) -> Table:
    table = Table(
        "job", "action", "verdict", "generation", "current", "worker", "late by", title="Refused writes"
    )
    for refused in cast.rejections():
        table.add_row(
            str(refused.job_id),
            refused.action,
            refused.verdict,
            str(refused.generation),
            str(refused.current_generation),
            refused.worker,
            str(refused.late_by),
        )
    return table
