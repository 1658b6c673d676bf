"""One message as a model reads it: a line about it, and its text in a fence."""

from waypost.client.message import Message
from waypost.mcp.rendering import FENCE_BYTES, fence
from waypost.policy.reserved_names import ANONYMOUS, OPERATOR, RELAY
from waypost.policy.tiers import Tier

KNOWN: dict[Tier, str] = {
    Tier.UNKNOWN: "unknown: you have never written to them",
    Tier.ACKNOWLEDGED: "acknowledged: you have written to them, but not lately",
    Tier.ACTIVE: "active: you have written to each other lately",
}
"""What a tier means to the one who reads."""

_RESERVED = {
    ANONYMOUS: "anyone at all: the sender did not say who it is",
    OPERATOR: "the operator of the relay",
    RELAY: "the relay itself",
}


def standing(message: Message) -> str:
    """Who sent it, and how well they are known."""
    sender = message.sender
    if sender in _RESERVED:
        return f"{sender} ({_RESERVED[sender]})"
    if message.tier not in KNOWN:
        return f"{sender} (tier not told)"
    return f"{sender} (tier {message.tier}, {KNOWN[Tier(message.tier)]})"


def heading(message: Message, text: str) -> str:
    """What the relay vouches for: everything but the text."""
    parts = [
        f"Message {message.id}",
        f"from {standing(message)}",
        f"sent {message.created_at:%Y-%m-%d %H:%M:%S} UTC",
        f"{len(text.encode()):,} bytes",
    ]
    if message.budget.ancestor_chain[-1:] != (message.subject,):
        parts.append(f"sent to {message.subject}, which others got too")
    if message.parent is not None:
        parts.append(f"follows from {message.parent}")
    if message.reply_to is not None:
        parts.append(f"answers go to {message.reply_to}")
    if message.problem is not None:
        parts.append("it is sealed and cannot be opened; below is why")
    return " | ".join(parts)


def block(message: Message, text: str) -> str:
    """The whole message."""
    return f"{heading(message, text)}\n{fence(text)}"


def block_bytes(message: Message, text: str) -> int:
    """How long `block` is, in bytes."""
    return len(heading(message, text)) + 1 + len(text.encode()) + FENCE_BYTES
