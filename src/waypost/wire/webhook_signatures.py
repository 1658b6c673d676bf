"""Signatures of notices, by the scheme of Standard Webhooks (standardwebhooks.com, `v1`).

Rule 1  The signature covers id, time and body, so none of them can be changed or combined anew.
Rule 2  A receiver compares in constant time, and accepts only recent times: an old notice cannot be
        played again.

Time and entropy are arguments.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from waypost.policy.errors import InvalidInput

SECRET_BYTES = 32
SECRET_MIN_BYTES = 24
TOLERANCE_S = 300
"""The difference between the clocks of relay and receiver that is accepted."""

_PREFIX = "whsec_"


def secret_text(raw: bytes) -> str:
    """Return random bytes as a secret."""
    return _PREFIX + base64.b64encode(raw).decode()


def signed_headers(secret: str, notice_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a notice: id, time and signature."""
    return {
        "webhook-id": notice_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": _signature(secret, notice_id, str(at_s), body),
    }


def check_signature(secret: str, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
    """Return the id of a notice that this secret signed. Raises `InvalidInput`.

    A header may have several signatures, as while a secret is replaced.
    """
    found = {name.lower(): value for name, value in headers.items()}
    notice_id, at, signatures = (
        found.get(name, "") for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    expected = _signature(secret, notice_id, at, body).encode()
    given = [one.encode(errors="replace") for one in signatures.split(" ")]
    if not any(hmac.compare_digest(expected, one) for one in given):
        raise InvalidInput("the notice is not signed with this secret")
    if not at.isdecimal() or abs(now_s - int(at)) > TOLERANCE_S:
        raise InvalidInput(
            f"the notice is not of the last {TOLERANCE_S} seconds: it is old, or a clock is wrong"
        )
    return notice_id


def _signature(secret: str, notice_id: str, at: str, body: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < SECRET_MIN_BYTES:
        raise InvalidInput("the secret of a webhook is 'whsec_' and 24 bytes or more as base64")
    signed = f"{notice_id}.{at}.".encode(errors="replace") + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
