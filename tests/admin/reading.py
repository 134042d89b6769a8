"""What the admin's pages say, and with which queries."""

import re
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgqueue.models import Job


def text_of(response: Any) -> str:
    """Return the page's text without tags and runs of white space."""
    return " ".join(re.sub(r"<[^>]*>", " ", response.content.decode()).split())


def cells(response: Any, job: Job) -> dict[str, str]:
    """Return the columns of the row of `job` by name."""
    rows = response.content.decode().split("<tr>")
    row = next(row for row in rows if f"/job/{job.pk}/change/" in row)
    found = re.findall(r'<t[dh] class="field-(\w+)[^"]*">(.*?)</t[dh]>', row, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]*>", " ", text).split()) for name, text in found}


def queries_of(client: Client, address: str) -> list[str]:
    """Return the statements that a page sends."""
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200
    return [query["sql"] for query in captured]
