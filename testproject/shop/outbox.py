"""Django's file-based mail backend as a receiver that knows idempotency keys, as mail providers do."""

from collections.abc import Sequence
from pathlib import Path

from django.core.mail import EmailMessage
from django.core.mail.backends.filebased import EmailBackend

from .files import write_once

KEY_HEADER = "Idempotency-Key"


class OutboxBackend(EmailBackend):
    """Deliver a mail to the file KEY.eml; a second mail with that key is dropped and noted in KEY.dropped.

    The sender gets the same answer for both, so that a retry looks like a success. Mails without a key go the
    usual way of the file-based backend.
    """

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        keyed = [message for message in email_messages if KEY_HEADER in message.extra_headers]
        for message in keyed:
            self._deliver(message, message.extra_headers[KEY_HEADER])
        others = [message for message in email_messages if message not in keyed]
        return len(keyed) + (super().send_messages(others) if others else 0)

    def _deliver(self, message: EmailMessage, key: str) -> None:
        outbox = Path(self.file_path)
        if not write_once(outbox / f"{key}.eml", message.message().as_bytes()):
            with (outbox / f"{key}.dropped").open("a") as notes:
                notes.write(f"{message.subject}\n")
