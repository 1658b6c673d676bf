"""Benchmarks: Waypost beside other brokers, on one machine and one filesystem."""
