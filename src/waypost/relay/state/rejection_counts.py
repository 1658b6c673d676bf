"""Recent rejections by sender and reason, for an operator who looks for a flooding sender.

Rule 1  Two periods of `PERIOD_US` are kept: the counts cover the last five to ten minutes.
Rule 2  Senders choose their names: a period lists at most `rejected_senders_in_memory_max` of them.
        When they are too many, the half with the fewest rejections goes, all at once: many new
        names cost little each. Its counts are kept as those of senders that are not listed.
"""

from collections import Counter

from waypost.policy.bounds import rejected_senders_in_memory_max
from waypost.wire.findings import SenderRejections

PERIOD_US = 5 * 60_000_000
UNLISTED = ""


class RejectionCounts:
    """Counts of rejections by sender and reason, in periods of `PERIOD_US`."""

    def __init__(self) -> None:
        self._periods: dict[int, dict[str, Counter[str]]] = {}

    def add(self, sender: str, reason: str, at_us: int, count: int = 1) -> None:
        """Count rejections of a sender at `at_us`; those before the last periods are left out."""
        number = at_us // PERIOD_US
        period = self._periods.get(number)
        if period is None:
            if self._periods and number < max(self._periods) - 1:
                return
            period = self._periods[number] = {UNLISTED: Counter()}
            for old in [one for one in self._periods if one < number - 1]:
                del self._periods[old]
        reasons = period.get(sender)
        if reasons is None:
            if len(period) > rejected_senders_in_memory_max:
                _drop_half(period)
            reasons = period[sender] = Counter()
        reasons[reason] += count

    def recent(self, now_us: int) -> list[SenderRejections]:
        """Return the senders of the last periods, those with the most rejections first."""
        last, found = now_us // PERIOD_US, dict[str, Counter[str]]()
        for number, period in self._periods.items():
            if number >= last - 1:
                for sender, reasons in period.items():
                    found.setdefault(sender, Counter()).update(reasons)
        senders = [
            SenderRejections(sender=sender, total=reasons.total(), reasons=dict(reasons))
            for sender, reasons in found.items()
            if reasons
        ]
        return sorted(senders, key=lambda one: (-one.total, one.sender))


def _drop_half(period: dict[str, Counter[str]]) -> None:
    listed = [sender for sender in period if sender != UNLISTED]
    listed.sort(key=lambda sender: period[sender].total())
    for sender in listed[: len(listed) // 2]:
        period[UNLISTED].update(period.pop(sender))
