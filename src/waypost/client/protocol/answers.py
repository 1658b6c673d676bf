"""The relay's answers to sends, as events; an answer to no send of this agent is none."""

from waypost.client.protocol.arrivals import check_result
from waypost.client.protocol.events import Answered
from waypost.client.protocol.outbox import Outbox
from waypost.policy.errors import InvalidMessage
from waypost.wire.frames import SendResult, SentMany
from waypost.wire.results import PublishResult


def answers_of(sent: SendResult | SentMany, outbox: Outbox) -> list[Answered]:
    """Return the answer to one send, or to many. Raises `InvalidMessage` if a `ref` is no send."""
    if isinstance(sent, SentMany):
        return [
            Answered(ref, PublishResult(message_id=message_id, delivered_to=sent.delivered_to))
            for ref in range(sent.ref, sent.last_ref + 1)
            if (message_id := _take_send(outbox, ref)) is not None
        ]
    check_result(sent)
    if _take_send(outbox, sent.ref) is None:
        return []
    result = PublishResult(
        message_id=sent.message_id,
        delivered_to=sent.delivered_to,
        rejected=sent.rejected,
        retry_after_ms=sent.retry_after_ms,
        mailbox_pressure=sent.mailbox_pressure,
        budget_cut=sent.budget_cut,
    )
    return [Answered(sent.ref, result)]


def _take_send(outbox: Outbox, ref: int) -> str | None:
    """Remove a send and return its message id; None if it was withdrawn or answered before."""
    asked = outbox.find(ref)
    if asked is None:
        return None
    if not asked.message_id:
        raise InvalidMessage("sent as the answer to another operation")
    outbox.answered(ref)
    return asked.message_id
