"""Returns: messages that were not acknowledged go back to their queues, and not endlessly.

Rule 1  A nack or a timeout is a failed delivery. The policy decides when the message is delivered
        again, and whether. A dead letter names the error: that of the nack, or the relay's words.
Rule 2  When a consumer disconnects or is stuck, only the delivery of its oldest message in flight
        has failed: probably the agent was working on it. Its delay pauses the whole mailbox, so
        that the order holds; in a pool, where no order holds, it is the message's own. The others
        were fetched ahead, and are released.
Rule 3  A release is without a verdict and does not count. A mailbox with many releases pauses.
Rule 4  While a mailbox pauses, neither leases nor consumers get its messages. An acknowledgement
        ends the pause.
Rule 5  When the relay itself stops, nothing counts and nothing pauses.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from waypost.policy.bounds import pauses_in_memory_max
from waypost.policy.reasons import reason_text
from waypost.policy.redelivery import decide_redelivery, is_end_of_request, mailbox_pause_ms
from waypost.policy.settings import Settings
from waypost.relay.clock import Timers
from waypost.relay.delivery.askers import Askers
from waypost.relay.delivery.deadlines import Deadline, Deadlines
from waypost.relay.delivery.transitions import Transitions
from waypost.relay.state.index import all_messages
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message


class Releases(msgspec.Struct):
    """Releases of one mailbox since its last acknowledgement, and the end of its pause."""

    count: int = 0
    paused_until_us: int = 0


class Returns:
    """Returns messages, and notifies their consumers when a delay or a pause ends."""

    def __init__(
        self,
        ledger: Ledger,
        transitions: Transitions,
        timers: Timers,
        askers: Askers,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._askers = askers
        self._settings = settings
        self._releases: OrderedDict[str, Releases] = OrderedDict()
        self._delays = Deadlines(timers, ledger.now_us, self._on_due)

    def nack(self, message: Message, error: str, via: str, delay_us: int) -> None:
        """Return a message that its consumer could not process, for `delay_us` at least.

        One that was delivered too often becomes a dead letter; with an error and no delay, so does
        one whose sender waits for the reply.
        """
        is_awaited = self._askers.is_waiting(message)
        ends = is_end_of_request(is_awaited=is_awaited, error=error, delay_us=delay_us)
        redelivery = self._settings().redelivery
        verdict = decide_redelivery(
            message.id, message.attempt, redelivery, error, ends_request=ends
        )
        if verdict.reason is not None:
            self._transitions.fail(message, verdict.reason, via=via, error=error)
        else:
            self._return(
                message, reason_text("nack", error), max(delay_us, verdict.delay_ms * 1000)
            )

    def fail(self, message: Message, reason: str, via: str, *, in_order: bool = False) -> None:
        """Return a message whose delivery failed for a `reason` of the relay, or dead-letter it.

        With `in_order`, its whole mailbox waits for it.
        """
        redelivery = self._settings().redelivery
        verdict = decide_redelivery(message.id, message.attempt, redelivery, reason)
        if verdict.reason is not None:
            self._transitions.fail(message, verdict.reason, via=via)
        elif not in_order:
            self._return(message, reason, verdict.delay_ms * 1000)
        else:
            self._transitions.release(message, reason)
            if verdict.delay_ms:
                self._pause(message.endpoint, verdict.delay_ms)

    def release(self, messages: Iterable[Message], reason: str, delay_us: int = 0) -> None:
        """Return messages of one mailbox without a verdict, for `delay_us` at least."""
        not_before_us, message = self._after(delay_us), None
        for message in messages:
            self._transitions.release(message, reason, not_before_us, uncounted=True)
            self._count_release(message.endpoint)
        if message is not None:
            self._notify_at(message.endpoint, not_before_us)

    def disconnect(
        self, in_flight: Sequence[Message], reason: str, via: str, *, in_order: bool
    ) -> None:
        """Return the messages of a consumer that has disconnected or is stuck, in order.

        With `in_order`, no message is delivered before the oldest one is due again.
        """
        self.release(reversed(in_flight[1:]), reason)
        self.fail(in_flight[0], reason, via, in_order=in_order)

    def is_paused(self, subject: str) -> bool:
        """Return whether the deliveries of a mailbox pause."""
        if not self._releases:
            return False
        releases = self._releases.get(subject)
        return releases is not None and releases.paused_until_us > self._ledger.now_us()

    def on_acked(self, subject: str) -> None:
        """Forget the releases of a mailbox, and end its pause."""
        if self._releases and self._releases.pop(subject, None) is not None:
            self._ledger.wake(subject)

    def resume_delays(self) -> None:
        """Set the timer for messages that were delayed before the relay was opened."""
        now_us = self._ledger.now_us()
        delays = {
            (message.not_before_us, message.endpoint)
            for message in all_messages(self._ledger.state)
            if message.not_before_us > now_us
        }
        for not_before_us, subject in delays:
            self._notify_at(subject, not_before_us)

    def stop(self) -> None:
        """Set no more timers."""
        self._delays.stop()

    def _return(self, message: Message, reason: str, delay_us: int) -> None:
        not_before_us = self._after(delay_us)
        self._transitions.release(message, reason, not_before_us)
        self._notify_at(message.endpoint, not_before_us)

    def _after(self, delay_us: int) -> int:
        return self._ledger.now_us() + delay_us if delay_us else 0

    def _count_release(self, subject: str) -> None:
        releases = self._releases_of(subject)
        releases.count += 1
        pause_ms = mailbox_pause_ms(releases.count)
        if pause_ms:
            self._pause(subject, pause_ms)

    def _pause(self, subject: str, pause_ms: int) -> None:
        releases, until_us = self._releases_of(subject), self._after(pause_ms * 1000)
        if until_us > releases.paused_until_us:
            releases.paused_until_us = until_us
            self._notify_at(subject, until_us)

    def _releases_of(self, subject: str) -> Releases:
        releases = self._releases.get(subject)
        if releases is None:
            if len(self._releases) >= pauses_in_memory_max:
                self._releases.popitem(last=False)
            releases = self._releases[subject] = Releases()
        return releases

    def _notify_at(self, subject: str, at_us: int) -> None:
        """Notify the consumers of `subject` at `at_us`, unless that is 0."""
        if at_us:
            self._delays.add((at_us, subject, ""))
            self._delays.set_timer()

    def _on_due(self, due: list[Deadline[str]]) -> None:
        for subject in dict.fromkeys(subject for _, subject, _ in due):
            self._ledger.listeners.visible(subject)
