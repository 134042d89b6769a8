"""Who plays: the orders of one run, their jobs, and what is left of them in tables and folders."""

import secrets
from dataclasses import dataclass
from decimal import Decimal
from email import message_from_bytes
from pathlib import Path

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import QuerySet

from django_pgqueue.models import Failure, Job, Rejection
from testproject.shop.models import Order, Rendering
from testproject.shop.tasks import send_receipt

SLOW_SECONDS = 2.5
QUICK_SECONDS = 0.2
CUSTOMERS = ["Ada", "Barbara", "Clara", "Dorothy", "Edith", "Frances", "Grace", "Hedy", "Irene", "Joan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """One run: its order at the front is the slow one, and `job_ids` go with `orders`."""

    orders: list[Order]
    job_ids: list[int]
    folder: Path

    @property
    def slow_job_id(self) -> int:
        return self.job_ids[0]

    def jobs(self) -> QuerySet[Job]:
        return Job.objects.filter(pk__in=self.job_ids).order_by("pk")

    def slow_job(self) -> Job:
        return Job.objects.get(pk=self.slow_job_id)

    def done(self) -> int:
        return self.jobs().filter(state="done").count()

    def rendering(self, generation: int) -> bool:
        """Return whether the slow receipt's rendering was begun by this generation."""
        return Rendering.objects.filter(job_id=self.slow_job_id, generation=generation).exists()

    def rejections(self) -> QuerySet[Rejection]:
        return Rejection.objects.filter(job_id__in=self.job_ids).order_by("pk")

    def refused_completions(self) -> QuerySet[Rejection]:
        return self.rejections().filter(action="complete")

    def failures(self) -> QuerySet[Failure]:
        return Failure.objects.filter(job_id__in=self.job_ids).order_by("pk")

    def mailed(self) -> list[str]:
        """Return the subjects of the mails that were delivered."""
        return sorted(_subject(path) for path in (self.folder / "mails").glob("*.eml"))

    def dropped(self) -> list[str]:
        """Return the subjects of the mails that the receiver dropped as duplicates."""
        notes = (self.folder / "mails").glob("*.dropped")
        return sorted(subject for path in notes for subject in path.read_text().splitlines())


def assemble(count: int, folder: Path) -> Cast:
    """Place the orders and enqueue their receipts, all in one transaction."""
    run = secrets.token_hex(3)
    with transaction.atomic():
        orders = [
            Order.objects.create(
                number=f"{run}-{number:02}",
                customer=CUSTOMERS[number % len(CUSTOMERS)],
                email=f"{CUSTOMERS[number % len(CUSTOMERS)].lower()}@example.com",
                amount=Decimal("19.90") + number,
                rendering_seconds=QUICK_SECONDS if number else SLOW_SECONDS,
            )
            for number in range(count)
        ]
        job_ids = [_enqueue(order) for order in orders]
    return Cast(orders=orders, job_ids=job_ids, folder=folder)


def _enqueue(order: Order) -> int:
    """Enqueue one receipt, before all other work, and return the job's id; there is one live job for an order."""
    receipt = send_receipt.using(priority=100, unique_key=f"receipt-{order.number}")
    return int(receipt.enqueue(order.pk).id)


def ensure_demo_user() -> None:
    """Create the superuser demo with the password demo, unless there is a user of that name."""
    users = get_user_model().objects
    if not users.filter(username="demo").exists():
        users.create_superuser("demo", "demo@example.com", "demo")


def _subject(mail: Path) -> str:
    return str(message_from_bytes(mail.read_bytes())["Subject"])
