"""Housekeeping that every worker does on its own clock: safe on all of them at once, no leader."""

from .exhaust import Exhaust
from .promote import Promote
from .prune import Prune

__all__ = ["Exhaust", "Promote", "Prune"]
