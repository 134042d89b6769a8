"""One module per queue, imported in that queue's own environment; `python -m benchmarks.adapters` calls them.

Each has TABLES (what to empty; the first is the one that claims write to); LEFT (SQL: whether anything is left to do);
CHECK (SQL: how many jobs with an id above `mark` ended as they should, how many there are, when the last one ended, and
perhaps how many were given back); perhaps MARK (SQL: the highest id so far); WORKERS (name: arguments to Python); and
the functions `setup`, `fill(count, kind)`, `enqueue(text)` and `stamp(sent)`. Where Django is used, the module is also
its settings.
"""

TEXT = "x" * 200
