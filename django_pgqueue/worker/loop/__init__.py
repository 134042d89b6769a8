"""The spine of a worker: read `cycle.py` from the top."""
