"""A small shop: the project that the demo and the tests of django_pgqueue run on."""

from pathlib import Path

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
