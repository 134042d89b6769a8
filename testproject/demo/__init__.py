"""The story of the demo: a worker is frozen in the middle of a job, replaced, and thawed."""
