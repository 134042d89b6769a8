"""The shop's receiver of mails knows idempotency keys, and its files are written once."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from django.core.mail import EmailMessage
from django.utils import timezone

from testproject.shop import receipts
from testproject.shop.files import write_once
from testproject.shop.models import Order
from testproject.shop.outbox import KEY_HEADER


@pytest.fixture
def outbox(settings, tmp_path):
    """Deliver mails to a folder of the test; pytest-django has put a backend in memory in place."""
    mails = tmp_path / "mails"
    if hasattr(settings, "MAILERS"):
        settings.MAILERS = {"default": {"BACKEND": settings.OUTBOX, "OPTIONS": {"file_path": mails}}}
    else:
        settings.EMAIL_BACKEND = settings.OUTBOX
        settings.EMAIL_FILE_PATH = mails
    return mails


def message(**headers):
    return EmailMessage("A subject", "A body", "shop@example.com", ["ada@example.com"], headers=headers)


def test_a_second_mail_with_the_same_key_is_dropped_and_answered_as_the_first(outbox):
    assert message(**{KEY_HEADER: "job-1"}).send() == 1
    assert message(**{KEY_HEADER: "job-1"}).send() == 1
    assert message(**{KEY_HEADER: "job-2"}).send() == 1
    assert sorted(path.name for path in outbox.iterdir()) == ["job-1.dropped", "job-1.eml", "job-2.eml"]
    assert (outbox / "job-1.dropped").read_text() == "A subject\n"


def test_a_mail_without_a_key_goes_the_usual_way(outbox):
    assert message().send() == 1
    assert message().send() == 1
    logs = list(outbox.iterdir())
    assert {path.suffix for path in logs} == {".log"}
    assert sum(path.read_text().count("Subject: A subject") for path in logs) == 2


def test_of_many_writers_of_one_file_one_wins_and_its_content_is_whole(tmp_path):
    contents = [str(number).encode() * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda content: write_once(tmp_path / "file", content), contents))
    assert won.count(True) == 1
    assert (tmp_path / "file").read_bytes() == contents[won.index(True)]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_receipt_is_a_pdf_for_any_name():
    order = Order(number="1", customer="Ευγενία", amount=Decimal("19.90"), placed_at=timezone.now())
    assert receipts.render(order).startswith(b"%PDF-")
