"""Webhooks of an agent: set one at its relay, and read the notices that arrive there.

    secret = OwnWebhook.of(HttpClient(url), identity).set("https://hooks.example.com/wake").secret

    notice = read_notice(secret, request.headers, request.body)   # in the receiver

Setting one needs httpx, as `waypost.client.http` does; reading a notice needs nothing.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from waypost.policy.errors import InvalidInput
from waypost.wire.webhook_bodies import (
    NewWebhook,
    NoticeOutcome,
    ReceivedNotice,
    WebhookContent,
    WebhookInfo,
    WebhookRequest,
)
from waypost.wire.webhook_signatures import check_signature

if TYPE_CHECKING:
    from waypost.client.http import HttpClient, Token
    from waypost.client.identity import Identity

__all__ = [
    "NewWebhook",
    "NoticeOutcome",
    "OwnWebhook",
    "ReceivedNotice",
    "WebhookInfo",
    "read_notice",
]


class OwnWebhook:
    """The webhook of one agent at one relay; `token` is its own, or the operator's.

    Every call raises `RemoteError` or `InvalidInput`.
    """

    def __init__(self, api: "HttpClient", subject: str, token: "Token") -> None:
        self._api = api
        self._token = token
        self._path = f"/v1/webhooks/{quote(subject, safe='')}"

    @classmethod
    def of(cls, api: "HttpClient", identity: "Identity") -> "OwnWebhook":
        """Return the webhook of the agent `identity`, after proving that it holds its keys."""
        return cls(api, identity.subject, api.log_in(identity))

    def set(self, url: str, content: WebhookContent = "notice") -> NewWebhook:
        """Set the webhook; the secret is in this answer only. An earlier one ends."""
        body = msgspec.json.encode(WebhookRequest(url=url, content=content))
        return self._api.put(self._path, body, NewWebhook, token=self._token)

    def show(self) -> WebhookInfo:
        """Return the webhook, with the outcome of the last notice."""
        return self._api.get(self._path, WebhookInfo, token=self._token)

    def test(self) -> NoticeOutcome:
        """Have the relay post a notice that announces nothing; return the outcome."""
        return self._api.post(f"{self._path}/test", {}, NoticeOutcome, token=self._token)

    def remove(self) -> WebhookInfo:
        """Remove the webhook; return what it was."""
        return self._api.delete(self._path, WebhookInfo, token=self._token)


def read_notice(
    secret: str, headers: Mapping[str, str], body: bytes, now_s: float | None = None
) -> ReceivedNotice:
    """Return a notice, after checking its signature and its time.

    `now_s` is the time in seconds since the epoch, by default that of this machine. Raises
    `InvalidInput` if the notice is not signed with `secret`, or old.
    """
    notice_id = check_signature(secret, headers, body, time.time() if now_s is None else now_s)
    try:
        return msgspec.convert(
            {"id": notice_id, **msgspec.json.decode(body)}, ReceivedNotice, strict=False
        )
    except (msgspec.MsgspecError, TypeError) as problem:
        raise InvalidInput(f"not a notice of a relay: {problem}") from None
