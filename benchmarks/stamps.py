"""The file in which jobs note how long they had waited."""

import os
import time


def note(sent):
    """Append the seconds from `sent` until now."""
    with open(os.environ["BENCHMARK_STAMPS"], "a") as stamps:
        stamps.write(f"{time.time() - sent}\n")
