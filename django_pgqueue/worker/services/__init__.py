"""The threads beside the loop, each on a service of its own."""
