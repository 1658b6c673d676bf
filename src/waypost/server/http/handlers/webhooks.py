"""Webhooks: an agent sets, shows, tests and removes its own; the operator any."""

import msgspec

from waypost.policy.subjects import validate_subject
from waypost.server.http.callers import Access, Caller
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Call,
    Operation,
    Reply,
    json_body,
)
from waypost.wire.http_bodies import SubjectText
from waypost.wire.webhook_bodies import NewWebhook, NoticeOutcome, WebhookInfo, WebhookRequest


class WebhookPath(msgspec.Struct, forbid_unknown_fields=True):
    """The subject of an agent."""

    subject: SubjectText


async def set_webhook(call: Call[WebhookPath, WebhookRequest]) -> Reply:
    """Set the webhook of an agent."""
    return Reply(await call.context.webhooks.set(_subject(call.caller, call.parameters), call.body))


async def get_webhook(call: Call[WebhookPath, None]) -> Reply:
    """Return the webhook of an agent."""
    return Reply(call.context.webhooks.get(_subject(call.caller, call.parameters)))


async def test_webhook(call: Call[WebhookPath, None]) -> Reply:
    """Post a notice to the webhook of an agent now."""
    return Reply(await call.context.webhooks.test(_subject(call.caller, call.parameters)))


async def remove_webhook(call: Call[WebhookPath, None]) -> Reply:
    """Remove the webhook of an agent."""
    return Reply(await call.context.webhooks.remove(_subject(call.caller, call.parameters)))


def _subject(caller: Caller, parameters: WebhookPath) -> str:
    subject = validate_subject(parameters.subject)
    caller.require(subject)
    return subject


_NONE = "The agent has no webhook."
_TOO_OFTEN = "Webhooks change too often; the response says when to try again."

OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="PUT",
        path="/v1/webhooks/{subject}",
        access=Access.AGENT,
        summary="Set the webhook of an agent",
        description=(
            "While messages wait for the agent and it is not connected, the relay posts notices to"
            " `url`, signed as Standard Webhooks defines it. The response has the new secret, which"
            " is shown only here. With the content `messages`, a notice has the waiting messages."
        ),
        tag="webhooks",
        handler=set_webhook,
        parameters=WebhookPath,
        body=json_body(WebhookRequest),
        answer=Answer(NewWebhook),
        rejections={
            403: "The settings do not allow this host, or the webhook is another agent's.",
            404: "The name belongs to no key.",
            429: _TOO_OFTEN,
        },
    ),
    Operation(
        method="GET",
        path="/v1/webhooks/{subject}",
        access=Access.AGENT,
        summary="Show the webhook of an agent",
        description="Without its secret; with the outcome of the last try.",
        tag="webhooks",
        handler=get_webhook,
        parameters=WebhookPath,
        body=NO_BODY,
        answer=Answer(WebhookInfo),
        rejections={404: _NONE},
    ),
    Operation(
        method="POST",
        path="/v1/webhooks/{subject}/test",
        access=Access.AGENT,
        summary="Test the webhook of an agent",
        description="Posts a notice of the type `webhook.test`, once, and returns the outcome.",
        tag="webhooks",
        handler=test_webhook,
        parameters=WebhookPath,
        body=NO_BODY,
        answer=Answer(NoticeOutcome),
        rejections={404: _NONE, 429: _TOO_OFTEN},
    ),
    Operation(
        method="DELETE",
        path="/v1/webhooks/{subject}",
        access=Access.AGENT,
        summary="Remove the webhook of an agent",
        description="No further notice is posted. Its messages stay where they are.",
        tag="webhooks",
        handler=remove_webhook,
        parameters=WebhookPath,
        body=NO_BODY,
        answer=Answer(WebhookInfo, "The webhook before."),
        rejections={404: _NONE, 429: _TOO_OFTEN},
    ),
)
