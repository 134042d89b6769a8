"""What a running job can ask of, and do under, its own lease."""

from .job import JobContext

__all__ = ["JobContext"]
