"""Render a receipt as a PDF, and mail it."""

import threading

from django.core.mail import EmailMessage
from fpdf import FPDF

from .models import Order
from .outbox import KEY_HEADER


def render(order: Order) -> bytes:
    """Return the receipt as a PDF, after as long as the PDF service takes for this order."""
    threading.Event().wait(order.rendering_seconds)
    page = FPDF(format=(148, 210))
    page.set_title(f"Receipt {order.number}")
    page.add_page()
    page.set_font("Helvetica", "B", 20)
    page.cell(text="Receipt", new_x="LMARGIN", new_y="NEXT")
    page.set_font("Helvetica", size=11)
    page.ln(6)
    with page.table(col_widths=(1, 2), first_row_as_headings=False) as table:
        for name, value in (
            ("Order", order.number),
            ("Customer", order.customer),
            ("Date", f"{order.placed_at:%Y-%m-%d}"),
            ("Amount", f"EUR {order.amount}"),
        ):
            table.row((name, _printable(value)))
    return bytes(page.output())


def mail(order: Order, pdf: bytes, *, key: str) -> None:
    """Mail the receipt; the receiver drops a second mail with the same key."""
    message = EmailMessage(
        subject=f"Your receipt for order {order.number}",
        body=f"Hello {order.customer},\n\nthank you for your order. The receipt is attached.\n",
        from_email="shop@example.com",
        to=[order.email],
        headers={KEY_HEADER: key},
    )
    message.attach(f"receipt-{order.number}.pdf", pdf, "application/pdf")
    message.send()


def _printable(text: str) -> str:
    """Replace what the PDF's built-in fonts cannot show."""
    return text.encode("latin-1", "replace").decode("latin-1")
