"""The queue's raw statements: each with why the ORM cannot say it, its index and its locks.

Rules that hold for all: times are written with clock_timestamp() and compared with statement_timestamp()
(clock_timestamp() is volatile and cannot be an index condition; now() is the transaction's start and would
shorten leases). State names are literals, so that the partial indexes are provable under any kind of plan.
Names are unqualified: the search_path decides. A batch takes its row locks in id order, or skips locked
rows, or both.
"""
