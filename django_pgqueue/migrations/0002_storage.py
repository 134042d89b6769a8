"""Storage parameters of the jobs table, for a table whose every row is updated a few times.

fillfactor 75 leaves room on the page, so that heartbeats are HOT updates (no index is written). The
autovacuum settings make vacuum follow the number of changed rows, not the size of the history.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0001_initial")]

    operations = [
        migrations.RunSQL(
            sql="""
                ALTER TABLE django_pgqueue_job SET (
                    fillfactor = 75,
                    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
                    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
                )
            """,
            reverse_sql="""
                ALTER TABLE django_pgqueue_job RESET (
                    fillfactor,
                    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
                    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold
                )
            """,
        )
    ]
