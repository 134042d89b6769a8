"""What must hold when the story has been told."""

from collections.abc import Iterator
from pathlib import Path

from testproject.shop.models import Receipt

from .cast import Cast


def verify(cast: Cast, *, frozen: str, exit_codes: dict[str, int]) -> list[tuple[str, bool]]:
    """Return each fact, and whether it holds; `frozen` is the id of the worker that was frozen."""
    return [*_about_all(cast), *_about_the_frozen(cast, frozen), *_about_workers(exit_codes)]


def _about_all(cast: Cast) -> Iterator[tuple[str, bool]]:
    receipts = list(Receipt.objects.filter(order__in=cast.orders))
    subjects = [f"Your receipt for order {order.number}" for order in cast.orders]
    yield "every job is done", cast.done() == len(cast.orders)
    yield (
        "every order has exactly one receipt, and its PDF",
        len(receipts) == len(cast.orders) and all(_is_pdf(Path(receipt.pdf)) for receipt in receipts),
    )
    yield (
        "every customer got exactly one mail",
        [subject for subject in cast.mailed() if subject in subjects] == sorted(subjects),
    )


def _about_the_frozen(cast: Cast, frozen: str) -> Iterator[tuple[str, bool]]:
    job = cast.slow_job()
    yield (
        "the frozen job was reclaimed once, and done as generation 2",
        (job.state, job.generation) == ("done", 2),
    )
    yield (
        "its generations belong to two workers, the frozen one first",
        len(job.worker_ids) == 2 and job.worker_ids[0] == frozen != job.worker_ids[1],
    )
    yield "its receipt is the replacement's", Receipt.objects.filter(job_id=job.pk, generation=2).count() == 1
    yield (
        "its lost attempt is recorded as lease_expired",
        [(failure.kind, failure.generation) for failure in cast.failures().filter(job_id=job.pk)]
        == [("lease_expired", 1)],
    )
    yield (
        "the late completion of generation 1 was refused once, as superseded, and no other",
        [
            (refused.job_id, refused.verdict, refused.generation, refused.current_generation, refused.worker)
            for refused in cast.refused_completions()
        ]
        == [(job.pk, "superseded", 1, 2, frozen)],
    )
    yield (
        "its second mail was dropped by the receiver, by its key",
        cast.dropped() == [f"Your receipt for order {cast.orders[0].number}"],
    )


def _about_workers(exit_codes: dict[str, int]) -> Iterator[tuple[str, bool]]:
    for name, code in exit_codes.items():
        yield f"worker {name} stopped with exit code 0 (it was {code})", code == 0


def _is_pdf(path: Path) -> bool:
    return path.exists() and path.read_bytes().startswith(b"%PDF-")
