"""The public test kit: a clock that tests advance by hand."""

from waypost.testing.manual_clock import ManualClock

__all__ = ["ManualClock"]
