"""One `runworker` process: a loop that claims and ends, what runs the jobs, and the services beside it."""
