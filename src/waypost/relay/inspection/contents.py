"""The pending messages of one mailbox, read without leasing them."""

import msgspec

from waypost.policy.bounds import peek_max_bytes
from waypost.relay.errors import RelayError
from waypost.relay.state.mailbox import NO_LIMIT, Mailbox, Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.wire.envelopes import Envelope


class PendingMessage(msgspec.Struct, frozen=True):
    """A pending message, and the id of the message it follows from."""

    envelope: Envelope
    parent: str | None


class MailboxContents(msgspec.Struct):
    """Pending messages of one mailbox, and counts of all.

    `unreadable` lists messages with a damaged payload, each with the damage.
    """

    messages: list[PendingMessage]
    unreadable: list[str]
    pending: int
    leased: int


def read_contents(  # noqa: PLR0913 - the limits of one read
    mailbox: Mailbox,
    payloads: PayloadStore,
    limit: int,
    max_size_bytes: int | None,
    now_ms: int,
    *,
    max_bytes: int = peek_max_bytes,
    committed_seq: int = NO_LIMIT,
) -> MailboxContents:
    """Return the oldest pending messages that have not expired, at most `limit`.

    Messages larger than `max_size_bytes` are left out. Together they have at most `max_bytes`,
    unless the first alone has more.
    """
    contents = MailboxContents([], [], 0, mailbox.leased_count)
    chosen: list[Message] = []
    for message in mailbox.pending():
        if message.ttl < now_ms or message.order > committed_seq:
            continue
        contents.pending += 1
        is_small = max_size_bytes is None or message.size <= max_size_bytes
        if is_small and len(chosen) < limit and max_bytes > 0:
            max_bytes -= message.size
            if max_bytes >= 0 or not chosen:
                chosen.append(message)
    for message in chosen:
        try:
            event, content = payloads.read(message)
            envelope = envelope_of(event, msgspec.json.decode(content), message.attempt + 1)
        except (RelayError, OSError) as problem:
            contents.unreadable.append(f"{message.id}: {problem}")
        else:
            contents.messages.append(PendingMessage(envelope, event.parent))
    return contents
