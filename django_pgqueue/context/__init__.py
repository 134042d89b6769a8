"""What a running job can ask of, and do under, its own lease."""

from .holding import Holding
from .job import JobContext

__all__ = ["Holding", "JobContext"]
