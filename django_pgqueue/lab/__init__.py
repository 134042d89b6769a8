"""Scenarios that prove the queue's guarantees on a real server, with real faults, and keep the evidence."""
