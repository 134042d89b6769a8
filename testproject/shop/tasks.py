"""The shop's tasks."""

from django.conf import settings
from django.db.models import Count, Sum

from django_pgqueue import JobContext, task

from . import receipts
from .files import write_once
from .models import Order, Receipt, Rendering


@task(queue_name="receipts", takes_context=True)
def send_receipt(context: JobContext, order_id: int) -> dict[str, str]:
    """Render the receipt of an order, mail it, and note it: once for each order, however often this runs.

    The mail carries a key that is the same on every attempt, so that the receiver drops a second one; the
    note commits together with the job's completion, or not at all. There is no `context.check()` before the
    mail: it can pass in the moment before a worker is frozen. It saves work, and protects nothing.
    """
    order = Order.objects.get(pk=order_id)
    if Receipt.objects.filter(order=order).exists():
        return {"receipt": "sent before"}
    Rendering.objects.create(order=order, job_id=context.job_id, generation=context.generation)

    pdf = receipts.render(order)
    path = settings.SHOP_FILES / "receipts" / f"{order.number}.pdf"
    write_once(path, pdf)
    receipts.mail(order, pdf, key=context.idempotency_key)

    with context.complete({"receipt": str(path)}):
        Receipt.objects.create(
            order=order, job_id=context.job_id, generation=context.generation, pdf=str(path)
        )
    return {"receipt": str(path)}


@task(queue_name="reports")
def summarize_orders() -> dict[str, str]:
    """Return how many orders and receipts there are, and what they come to."""
    totals = Order.objects.aggregate(orders=Count("id"), receipts=Count("receipt"), amount=Sum("amount"))
    return {name: str(total or 0) for name, total in totals.items()}


@task()
async def echo(text: str) -> str:
    """Return the text: the smallest task that is async."""
    return text


@task(max_attempts=3)
def fail_on_purpose(message: str) -> None:
    """Raise: for looking at failures and retries in the admin."""
    raise RuntimeError(message)
