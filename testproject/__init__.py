"""A small shop: the project that the demo and the tests of django_pgqueue run on."""
