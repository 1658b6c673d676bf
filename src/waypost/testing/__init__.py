"""The public test kit: drive a relay through time by hand."""

from waypost.testing.manual_clock import ManualClock

__all__ = ["ManualClock"]
