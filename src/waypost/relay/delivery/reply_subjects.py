"""The subjects to which replies to requests are published."""

import secrets

REPLY_PREFIX = "_reply."


def reply_subject() -> str:
    """A subject nobody else can know."""
    return f"{REPLY_PREFIX}{secrets.token_hex(12)}"
