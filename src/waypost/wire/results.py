"""The result of a publish."""

import msgspec

from waypost.policy.budgets import BudgetCut
from waypost.policy.reasons import Reason


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """The rejection by one endpoint, given by its hash.

    It is empty if the whole publish was rejected, and if a served relay does not show which of the
    endpoints of a pattern it was.
    """

    endpoint_hash: str
    reason: Reason
    detail: str = ""


def denied_result(detail: str) -> "PublishResult":
    """Return the result of a publish that access rules deny, for callers that want a value."""
    denied = Rejection("", Reason.ACCESS_DENIED, detail)
    return PublishResult(message_id="", delivered_to=0, rejected=[denied])


class NeverConnected(msgspec.Struct, frozen=True, gc=False):
    """No agent has ever connected as the recipient; the message waits for one, if it was stored.

    `did_you_mean` is the name of an agent that differs by one mistake, or empty. Agents choose
    their names.
    """

    did_you_mean: str = ""


class PublishResult(msgspec.Struct, kw_only=True, gc=False):
    """The result of a publish.

    Decisions about a message are on disk before the caller gets this. The rejection of a whole
    publish (`message_id` is empty) is returned without that wait.

    `retry_after_ms` is the time until a rejected publish can succeed, 0 if unknown.
    `mailbox_pressure` maps endpoint hashes to the fill level of their mailboxes, 0.0 to 1.0.
    `budget_cut` is present if the requested budget was larger than what is allowed.
    `never_connected` is present if a served relay knows no agent of that name, and its directory
    is open.
    """

    message_id: str
    delivered_to: int
    rejected: list[Rejection] = []
    retry_after_ms: int = 0
    mailbox_pressure: dict[str, float] = {}
    budget_cut: BudgetCut | msgspec.UnsetType = msgspec.UNSET
    never_connected: NeverConnected | msgspec.UnsetType = msgspec.UNSET
