"""What senders are told beyond the result of their publish, as signals on their own subject."""

from collections.abc import Mapping

from waypost.policy.admission import DeliveryVerdict
from waypost.policy.settings import Settings
from waypost.relay.delivery.signals import Signals
from waypost.relay.state.mailbox import Mailbox, Message
from waypost.wire.envelopes import instant
from waypost.wire.payloads import Signal, SignalType


class Notices:
    """Signals about pressure and evictions; free of cost while nobody listens."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def pressure(
        self,
        sender: str,
        mailbox: Mailbox,
        verdict: DeliveryVerdict,
        settings: Settings,
        at_us: int,
    ) -> None:
        """A mailbox the sender writes to is filling up ("warning") or full ("critical")."""
        if not self._signals.anyone:
            return
        data = {
            "pressure": verdict.pressure,
            "current_size": verdict.depth,
            "max_mailbox_size": settings.backpressure.max_mailbox_size,
        }
        state = "warning" if verdict.reason is None else "critical"
        self._tell(sender, state, mailbox.subject, at_us, data)

    def evicted(self, message: Message, at_us: int) -> None:
        """A message of the sender had to make room."""
        if self._signals.anyone:
            data = {"message_id": message.id, "size": message.size}
            self._tell(message.sender, "evicted", message.endpoint, at_us, data)

    def _tell(
        self, sender: str, state: str, endpoint: str, at_us: int, data: Mapping[str, object]
    ) -> None:
        signal = Signal(
            type=SignalType.BACKPRESSURE,
            state=state,
            endpoint_subject=endpoint,
            timestamp=instant(at_us),
            data=data,
        )
        self._signals.emit(sender, signal)
