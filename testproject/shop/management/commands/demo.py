from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from testproject.demo.limits import DemoFailed
from testproject.demo.run import run


class Command(BaseCommand):
    help = "Freeze a worker in the middle of a job, thaw it when it was replaced, and see its result refused."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--orders", type=int, default=12, help="How many orders to place (12).")

    def handle(self, *args: Any, orders: int, **options: Any) -> None:
        try:
            run(self.stdout._out, orders=max(orders, 2))
        except DemoFailed as failure:
            raise CommandError(f"This did not hold: {failure}") from failure
        except KeyboardInterrupt:
            raise CommandError("Interrupted; the workers are stopped.", returncode=130) from None
