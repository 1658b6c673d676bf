"""Webhooks: HTTP bodies about them, and the notice that the relay posts."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from waypost.policy.bounds import webhook_url_max_chars
from waypost.wire.http_bodies import Delivered, RequestBody

UrlText = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=webhook_url_max_chars,
        examples=["https://hooks.example.com/wake"],
    ),
]
WebhookContent = Literal["notice", "messages"]
NoticeType = Literal["messages.waiting", "webhook.test"]


class WebhookRequest(RequestBody, kw_only=True):
    """The URL that the relay posts notices to; `content`: without messages, or with them."""

    url: UrlText
    content: WebhookContent = "notice"


class NoticeOutcome(msgspec.Struct, kw_only=True, frozen=True):
    """A try to post a notice. `status` is that of the response, 0 without one.

    `problem` is empty if the receiver accepted the notice. `final`: it is not tried again.
    """

    at: datetime
    status: int = 0
    problem: str = ""
    final: bool = False


class WebhookInfo(msgspec.Struct, kw_only=True):
    """The webhook of an agent, and the outcome of the last try since the relay started."""

    subject: str
    url: str
    content: WebhookContent
    set_at: datetime
    last: NoticeOutcome | None = None


class NewWebhook(WebhookInfo, kw_only=True):
    """A webhook that was set now. `secret` signs its notices, and is shown only here."""

    secret: str


class NoticeData(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whose messages wait, and how many; with `messages`, the oldest of them."""

    subject: str
    waiting: int
    messages: list[Delivered] | None = None


class Notice(msgspec.Struct, kw_only=True):
    """The body of a notice, in the form that Standard Webhooks recommends."""

    type: NoticeType
    timestamp: datetime
    data: NoticeData


class ReceivedNoticeData(msgspec.Struct, kw_only=True):
    """`NoticeData` as its receiver reads it: messages are plain JSON."""

    subject: str
    waiting: int
    messages: list[dict[str, Any]] = []


class ReceivedNotice(msgspec.Struct, kw_only=True):
    """A notice whose signature is valid. `id` is the same if the notice is tried again."""

    id: str
    type: str
    timestamp: datetime
    data: ReceivedNoticeData
