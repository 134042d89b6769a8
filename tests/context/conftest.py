"""Every test here commits."""

from tests.context.database import quick_clean_up

__all__ = ["quick_clean_up"]
