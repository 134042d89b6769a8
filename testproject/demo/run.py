"""Set the stage, tell the story, and say what came of it."""

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from .cast import Cast, assemble, ensure_demo_user
from .limits import DemoFailed, ending_within
from .screen import Screen
from .story import Story

LIMIT = timedelta(seconds=50)


def run(file: IO[str], *, orders: int) -> None:
    """Run the whole demo. Raises DemoFailed, saying what did not hold."""
    with ending_within(LIMIT), Screen(file) as screen:
        screen.say("migrating the database")
        call_command("migrate", verbosity=0, interactive=False)
        cast = assemble(orders, settings.SHOP_FILES / f"demo-{timezone.now():%Y%m%d-%H%M%S}")
        screen.say(f"{orders} orders placed and their receipts enqueued, in one transaction")
        try:
            facts = Story(cast, screen).tell()
        except DemoFailed:
            screen.show(cast)
            raise
        screen.show(cast)
        screen.conclude(facts)
        _tell_where(screen, cast)
    broken = [fact for fact, holds in facts if not holds]
    if broken:
        raise DemoFailed("; ".join(broken))


def _tell_where(screen: Screen, cast: Cast) -> None:
    folder = _short(cast.folder)
    print_line = screen.console.print
    print_line(f"\nPDFs   {folder}/receipts\nMails  {folder}/mails\nLogs   {folder}/demo-*.log")
    if settings.DEBUG:
        ensure_demo_user()
        print_line(
            f"Admin  {_short(Path(sys.executable))} manage.py runserver\n"
            "       then http://127.0.0.1:8000/admin/ with the user demo and the password demo"
        )


def _short(path: Path) -> str:
    """Return the path as seen from here, if it lies below."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
