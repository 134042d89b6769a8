"""Housekeeping that every worker does on its own clock: safe on all of them at once, no leader."""

from .exhaust import Exhaust, exhaust
from .promote import Promote, next_due, promote
from .prune import Prune

__all__ = ["Exhaust", "Promote", "Prune", "exhaust", "next_due", "promote"]
