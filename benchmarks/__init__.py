"""What this queue costs, beside the raw statements and other queues, on one server in one run.

`python -m benchmarks` starts an embedded PostgreSQL of its own; DATABASE_URL names another server instead, where the
user is a superuser. It writes results as JSON and as the Markdown table of docs/benchmarks.md.
"""
