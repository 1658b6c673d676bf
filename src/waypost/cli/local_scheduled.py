"""The scheduled messages of a relay on this machine."""

from waypost.cli.local import LocalRelay
from waypost.policy.subjects import validate_subject
from waypost.relay.relay import Relay
from waypost.wire.schedule_bodies import CancelResponse
from waypost.wire.scheduled import ScheduledMessage


class LocalScheduled(LocalRelay):
    """A relay on this machine's disk, with the operations on its scheduled messages."""

    def scheduled(self, sender: str | None) -> tuple[list[ScheduledMessage], bool]:
        """Return the messages that are not due yet, and that these are all."""
        return self.snapshot(sender).scheduled(sender), False

    def cancel(self, ids: list[str], sender: str | None) -> CancelResponse:
        """Cancel messages that are not due yet."""
        if sender is not None:
            validate_subject(sender)
        self.require()

        async def act(relay: Relay) -> CancelResponse:
            cancelled = await relay.cancel(ids, sender)
            left = [one for one in dict.fromkeys(ids) if one not in cancelled]
            return CancelResponse(cancelled=cancelled, not_cancelled=left)

        return self.with_relay(act)
