"""How jobs end, and what an operator may do to them."""

from .endings import (
    Ended,
    Ending,
    complete,
    completed,
    end,
    fail,
    failed,
    release,
    released,
    settle,
    snoozed,
)
from .exhaust import Spent, exhaust
from .operators import Reply, cancel, retry, run_now

__all__ = [
    "Ended",
    "Ending",
    "Reply",
    "Spent",
    "cancel",
    "complete",
    "completed",
    "end",
    "exhaust",
    "fail",
    "failed",
    "release",
    "released",
    "retry",
    "run_now",
    "settle",
    "snoozed",
]
