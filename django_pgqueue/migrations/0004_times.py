"""Times that Python can hold: one row with an infinite time would stop whoever reads it."""

import datetime

from django.db import migrations, models

READABLE = (
    datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC),
)


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0003_effect")]

    operations = [
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(enqueued_at__range=READABLE, run_after__range=READABLE),
                name="pgqueue_job_times",
            ),
        ),
    ]
