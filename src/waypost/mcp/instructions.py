"""Instructions to a model after a rejection or a failure: the cause, the wait, the next step.

Rule 1  One instruction for every reason; the tables are closed, and a test compares them with the
        enums.
Rule 2  No instruction invites a retry that would be rejected again.
Rule 3  A problem the model cannot fix goes to the person it works for.
"""

import math
from collections.abc import Iterable

from waypost.client.errors import (
    AgentClosed,
    AlreadyConnected,
    OperationRejected,
    SendTimedOut,
)
from waypost.mcp.quoting import one_line, quoted_text
from waypost.policy.errors import AccessDenied, InvalidInput, WaypostError
from waypost.policy.guard import GuardLimit, GuardRejectionReason
from waypost.policy.reasons import Reason
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT
from waypost.wire.results import Rejection

REJECTIONS: dict[Reason, str] = {
    Reason.RATE_LIMITED: (
        "You send too fast. Wait {wait} before you send anything to anyone, then send this once"
        " more. Say the same in fewer messages."
    ),
    Reason.FANOUT_EXCEEDED: (
        "Your pattern matches more recipients than one message may reach. Do not send it again to"
        " this pattern: use a narrower one, or name each recipient."
    ),
    Reason.BACKPRESSURE: (
        "The recipient's mailbox is full. Do not send it again now: wait some minutes until the"
        " recipient has acknowledged messages, or continue without it and report that to the person"
        " or agent who gave you the task."
    ),
    Reason.QUOTA_EXCEEDED: (
        "Too many of your messages are unread in that inbox. Send nothing more there until the"
        " recipient has read them; relay_explain shows whether an earlier one was acknowledged."
    ),
    Reason.CIRCUIT_OPEN: (
        "Deliveries to this recipient keep failing, so the relay has paused them. Wait {wait}, then"
        " send once more. If it is rejected again, continue without the recipient."
    ),
    Reason.BUDGET_EXCEEDED: (
        "The budget of this conversation is used up. Do not send it again in this conversation;"
        " finish with what you have."
    ),
    Reason.STORAGE_FULL: (
        "The relay's disk is full, so no message can be stored. Tell the person you work for;"
        " sending again helps only after the relay's operator has freed space."
    ),
    Reason.ACCESS_DENIED: (
        "The relay's access rules do not allow you to send to this subject. Sending again will not"
        " help: use another recipient, or tell the person you work for."
    ),
    Reason.MAILBOX_UNAVAILABLE: (
        "The relay cannot create a mailbox for this recipient on its disk. Tell the person you work"
        " for; sending again helps only after the relay's operator has repaired it."
    ),
    Reason.PARTITION_UNAVAILABLE: (
        "The part of the relay that serves this recipient cannot be reached at the moment. If there"
        " is a message id, the message is stored and delivered once that part is back: do not send"
        " it again. If there is none, send it again after {wait}."
    ),
}

BUDGET_EXCEEDED: tuple[tuple[str, str], ...] = (
    (
        "cycle detected",
        "This was stopped as a loop: the message you give as in_reply_to came by way of this"
        " recipient, and yours would go in circles. If you mean to answer what the recipient asked"
        " you, give the id of its own message as in_reply_to. If yours only acknowledges, thanks or"
        " repeats, do not send it. If you need something new from the recipient, begin a new"
        " conversation: relay_send to its subject without in_reply_to, with all the information it"
        " needs.",
    ),
    (
        "max hops exceeded",
        "This was stopped as a runaway chain: it was forwarded from agent to agent too often. Do"
        " not forward it. Do the rest yourself, or report what is missing to the person or agent"
        " who gave you the task.",
    ),
    (
        "call budget exhausted",
        "This conversation has used all its calls, so nothing more can be sent in it. Finish here"
        " with what you have, and report what is missing to the person or agent who gave you the"
        " task. Only if you need something new, start a new message without in_reply_to, with all"
        " the information its recipient needs.",
    ),
    (
        "message expired",
        "This conversation has expired, so an answer would come too late. Do not send it; if it"
        " still matters, begin a new conversation without in_reply_to.",
    ),
)
"""Instructions for each exhausted part of a budget, by the first words of the rejection's
detail."""

GUARD_REJECTIONS: dict[GuardRejectionReason, str] = {
    GuardRejectionReason.RATE_LIMITED: (
        "You wait for answers too often. Wait {wait}, or use relay_send and check relay_inbox"
        " later: that is not limited in this way."
    ),
    GuardRejectionReason.CIRCUIT_OPEN: (
        "This agent failed to answer several times in a row. Wait {wait} before you wait for it"
        " again, or use relay_send and check relay_inbox later."
    ),
}

NO_SUCH_ENDPOINT = (
    "No mailbox exists under this subject, so nothing was stored. Check the spelling with"
    " relay_list_endpoints; relay_register_endpoint creates a mailbox, if you are allowed to."
)

TELL_YOUR_PERSON = (
    "You cannot fix this yourself: tell the person you work for. Once it is fixed, call the tool"
    " again; it reconnects automatically."
)


def seconds(ms: int) -> int:
    """Return milliseconds as whole seconds, rounded up."""
    return math.ceil(ms / 1000)


def wait_text(ms: int) -> str:
    """Return a wait as text; a minute if it is unknown."""
    if ms <= 0:
        return "a minute"
    count = seconds(ms)
    return "1 second" if count == 1 else f"{count} seconds"


def what_to_do(rejection: Rejection, retry_after_ms: int) -> str:
    """Return the instruction for one rejection."""
    if rejection.reason is Reason.BUDGET_EXCEEDED:
        for beginning, instruction in BUDGET_EXCEEDED:
            if rejection.detail.startswith(beginning):
                return instruction
    return REJECTIONS[rejection.reason].format(wait=wait_text(retry_after_ms))


def rejection_lines(rejected: Iterable[Rejection], retry_after_ms: int) -> list[str]:
    """Return rejections as lines of reason, detail and instruction, without duplicates."""
    lines = [
        f"Rejected ({one.reason}{_detail(one)}). {what_to_do(one, retry_after_ms)}"
        for one in rejected
    ]
    return list(dict.fromkeys(lines))


def guard_rejection(reason: GuardRejectionReason, retry_after_ms: int, limit: GuardLimit) -> str:
    """Return the instruction for a request that this agent's own guard blocked."""
    instruction = GUARD_REJECTIONS[reason].format(wait=wait_text(retry_after_ms))
    return (
        f"Not sent ({reason.lower()}: {limit.text}). {instruction} The person you work for can"
        f" change this limit: {limit.variable} in the environment of this program."
    )


def failure(problem: WaypostError) -> str:
    """Return the error text of `problem`, which may be the relay's, and what to do about it."""
    text = one_line(str(problem))
    match problem:
        case InvalidInput():
            return f"{text}. Nothing was done: correct the arguments and call again."
        case AccessDenied():
            return f"{text}. {REJECTIONS[Reason.ACCESS_DENIED]}"
        case SendTimedOut():
            return (
                f"{text}. Call again with the same arguments and"
                f' message_id="{problem.message_id}": it is stored once in either case.'
            )
        case AlreadyConnected():
            return (
                f"Not connected: {text}. Another program uses the same keys, perhaps another"
                " window of this one: close it first, start both with --shared, or give this one"
                " keys of its own ('waypost keys new SUBJECT'). If it closed a moment ago, call"
                " again in a minute."
                f" Otherwise: {TELL_YOUR_PERSON}"
            )
        case OperationRejected(retry_after_ms=wait) if wait:
            rejected = f"Rejected by the relay: {quoted_text(text)}."
            return f"{rejected} Wait {wait_text(wait)} and call again."
        case OperationRejected():
            return f"Rejected by the relay: {quoted_text(text)}. Call again later."
        case AgentClosed():
            return "The connection to the relay was closed. Call again: it reconnects."
        case _:
            return f"{text}. {TELL_YOUR_PERSON}"


def _detail(rejection: Rejection) -> str:
    if not rejection.detail or rejection.detail == QUOTA_EXCEEDED_TEXT:
        return ""
    return f": {quoted_text(rejection.detail)}"
