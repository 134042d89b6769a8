"""How jobs end, and what an operator may do to them."""

from .endings import Accepted, Ending, Settled, Spent, complete, end, end_singly, fail, release, settle
from .operators import Reply, cancel, retry, run_now

__all__ = [
    "Accepted",
    "Ending",
    "Reply",
    "Settled",
    "Spent",
    "cancel",
    "complete",
    "end",
    "end_singly",
    "fail",
    "release",
    "retry",
    "run_now",
    "settle",
]
