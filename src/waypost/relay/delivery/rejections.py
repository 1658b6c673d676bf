"""Rejections, as results and in the journal: each one up to a cap, then only counts."""

import msgspec

from waypost.policy.bounds import journaled_rejections_per_sender_minute_max
from waypost.policy.budgets import Budget
from waypost.policy.reasons import UNCOUNTED, Reason
from waypost.relay.errors import RelayStopped
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.rejection_counts import RejectionCounts
from waypost.wire.events import Rejected
from waypost.wire.results import PublishResult, Rejection

_MINUTE_US = 60_000_000


class _Tally(msgspec.Struct):
    minute: int
    written: int
    unwritten: dict[tuple[str, Reason], Rejected]


class RejectionLog:
    """Journals rejections; for each sender and minute, those above a cap are only counted."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tallies: dict[str, _Tally] = {}
        self.counts = RejectionCounts()

    def record(self, event: Rejected) -> None:
        """Journal a rejection, or count it with similar ones."""
        self.counts.add(event.sender, event.reason, event.at_us)
        minute = event.at_us // _MINUTE_US
        tally = self._tallies.get(event.sender)
        if tally is not None and tally.minute != minute:
            self._write_counts(tally)
            tally = None
        if tally is None:
            tally = self._tallies[event.sender] = _Tally(minute, 0, {})
        # A rejection after the rate limit counts in its window, which bounds it: always journaled.
        # That of a forwarded message was counted elsewhere, and must be found if it comes again.
        counts = event.rate_limit > 0 and event.reason not in UNCOUNTED
        is_single = counts or event.origin is not None
        if is_single or tally.written < journaled_rejections_per_sender_minute_max:
            tally.written += 1
            self._ledger.record(event)
            return
        similar = tally.unwritten.setdefault((event.endpoint, event.reason), event)
        if similar is event:  # from now on it represents many messages
            event.id, event.thread, event.chosen_id = "", "", False
            event.since_us = event.at_us
        else:
            similar.count += 1

    def record_denied(self, message_id: str, sender: str, subject: str, at_us: int) -> None:
        """Journal a publish that access rules denied as a whole."""
        self.record(
            Rejected(
                at_us=at_us,
                id=message_id,
                sender=sender,
                subject=subject,
                budget=Budget(ttl=0),
                reason=Reason.ACCESS_DENIED,
            )
        )

    def sweep(self, now_us: int) -> None:
        """Journal the counts of past minutes."""
        minute = now_us // _MINUTE_US
        past = [sender for sender, tally in self._tallies.items() if tally.minute != minute]
        for sender in past:
            self._write_counts(self._tallies.pop(sender))

    def flush(self) -> None:
        """Journal every count."""
        for tally in self._tallies.values():
            self._write_counts(tally)
        self._tallies.clear()

    def _write_counts(self, tally: _Tally) -> None:
        for event in tally.unwritten.values():
            event.at_us = self._ledger.now_us()
            self._ledger.record(event)
        tally.unwritten = {}


def storage_failed_result(stopped: RelayStopped) -> PublishResult:
    """Return the rejection for a full disk; raise any other failure of the journal."""
    if not stopped.full:
        raise stopped
    return rejected_result(Reason.STORAGE_FULL, str(stopped))


def rejected_result(reason: Reason, detail: str, retry_after_ms: int = 0) -> PublishResult:
    """Return the result of a publish that was rejected as a whole."""
    return PublishResult(
        message_id="",
        delivered_to=0,
        rejected=[Rejection("", reason, detail)],
        retry_after_ms=retry_after_ms,
    )
