"""What a model is told when something is refused or fails: why, how long to wait, what to do.

Rule 1  One sentence of instruction for every reason there is; the tables are closed, and a test
        compares them with the enums.
Rule 2  Nothing invites a retry that would be refused again.
Rule 3  What a model cannot mend, it is told to tell the person it works for.
"""

import math
from collections.abc import Iterable

from waypost.client.errors import (
    AgentClosed,
    AlreadyConnected,
    OperationRejected,
    SendTimedOut,
)
from waypost.policy.errors import AccessDenied, InvalidInput, WaypostError
from waypost.policy.guard import GuardRejectionReason
from waypost.policy.reasons import Reason
from waypost.policy.tiers import QUOTA_EXCEEDED_TEXT
from waypost.wire.results import Rejection

REJECTIONS: dict[Reason, str] = {
    Reason.RATE_LIMITED: (
        "You send too fast. Wait {wait} before you send anything to anyone, then send this once"
        " more. Put what you have to say into fewer messages."
    ),
    Reason.BACKPRESSURE: (
        "The recipient's mailbox is full. Do not send it again now: wait some minutes until the"
        " recipient has acknowledged something, or do without its help and say so to whoever gave"
        " you the task."
    ),
    Reason.QUOTA_EXCEEDED: (
        "Too much of what you sent waits unread in that inbox. Send nothing more there until the"
        " recipient has read it; relay_explain tells whether an earlier message was acknowledged."
    ),
    Reason.CIRCUIT_OPEN: (
        "Deliveries to this recipient keep failing, so the relay has paused them. Wait {wait}, then"
        " send once more. If it is refused again, do without the recipient."
    ),
    Reason.BUDGET_EXCEEDED: (
        "The conversation this message belongs to has used up what it may do. Do not send it again"
        " in this conversation; finish with what you have."
    ),
    Reason.STORAGE_FULL: (
        "The relay's disk is full, so nothing can be stored for anyone. Tell the person you work"
        " for; sending again helps only once the relay's operator has made room."
    ),
    Reason.ACCESS_DENIED: (
        "The relay's access rules do not let you write to this subject. Sending again will not"
        " help: use another recipient, or tell the person you work for."
    ),
}

SPENT: tuple[tuple[str, str], ...] = (
    (
        "cycle detected",
        "This was stopped as a loop: the recipient already took part in this conversation, and"
        " your message would go round in a circle. If it only acknowledges, thanks or repeats, do"
        " not send it. If you need something new from the recipient, begin a new conversation:"
        " relay_send to its subject without in_reply_to, with everything it has to know.",
    ),
    (
        "max hops exceeded",
        "This was stopped as a runaway chain: it was handed from agent to agent too often. Do not"
        " hand it on. Do the rest yourself, or tell whoever gave you the task what is missing.",
    ),
    (
        "call budget exhausted",
        "The calls this task may make are used up. Make no more for it: finish with what you have,"
        " or tell whoever gave you the task what is missing.",
    ),
    (
        "message expired",
        "The time for this conversation is over, so an answer would come too late. Do not send it;"
        " if it still matters, begin a new conversation without in_reply_to.",
    ),
)
"""What to do about each way in which a budget is spent, by the first words of its detail."""

GUARDED: dict[GuardRejectionReason, str] = {
    GuardRejectionReason.RATE_LIMITED: (
        "You wait for answers too often. Wait {wait}, or use relay_send and look into relay_inbox"
        " later: that is not limited in this way."
    ),
    GuardRejectionReason.CIRCUIT_OPEN: (
        "This agent has not answered several times in a row. Wait {wait} before you wait for it"
        " again, or use relay_send and look into relay_inbox later."
    ),
}

NOBODY_THERE = (
    "Nobody has a mailbox under this subject, so nothing was stored. Check the spelling with"
    " relay_list_endpoints; relay_register_endpoint can make a mailbox, if you may."
)

TELL_YOUR_PERSON = (
    "You cannot mend this yourself: tell the person you work for. Once it is mended, call the tool"
    " again; it connects by itself."
)


def seconds(ms: int) -> int:
    """Whole seconds to wait, rounded up."""
    return math.ceil(ms / 1000)


def wait_words(ms: int) -> str:
    """How long to wait, in words; a minute where it is not known."""
    if ms <= 0:
        return "a minute"
    count = seconds(ms)
    return "1 second" if count == 1 else f"{count} seconds"


def what_to_do(rejection: Rejection, retry_after_ms: int) -> str:
    """The instruction for one rejection."""
    if rejection.reason is Reason.BUDGET_EXCEEDED:
        for beginning, instruction in SPENT:
            if rejection.detail.startswith(beginning):
                return instruction
    return REJECTIONS[rejection.reason].format(wait=wait_words(retry_after_ms))


def rejection_lines(rejected: Iterable[Rejection], retry_after_ms: int) -> list[str]:
    """Rejections as lines: the reason, its detail, and the instruction; each once."""
    lines = [
        f"Refused ({one.reason}{_detail(one)}). {what_to_do(one, retry_after_ms)}"
        for one in rejected
    ]
    return list(dict.fromkeys(lines))


def guard_rejection(reason: GuardRejectionReason, retry_after_ms: int) -> str:
    """What to do when this agent's own guard does not let a request out."""
    return f"Not sent ({reason.lower()}). {GUARDED[reason].format(wait=wait_words(retry_after_ms))}"


def failure(problem: WaypostError) -> str:
    """What went wrong, and what to do about it."""
    match problem:
        case InvalidInput():
            return f"{problem}. Nothing was done: mend the arguments and call again."
        case AccessDenied():
            return f"{problem}. {REJECTIONS[Reason.ACCESS_DENIED]}"
        case SendTimedOut():
            return (
                f"{problem}. Call again with the same arguments and"
                f' message_id="{problem.message_id}": it is then stored once, in either case.'
            )
        case AlreadyConnected():
            return (
                f"Not connected: {problem}. Another program uses the same keys, perhaps another"
                " window of this one: that has to end first, or this one needs keys of its own"
                " ('waypost keys new SUBJECT'). If it ended a moment ago, call again in a minute;"
                f" else: {TELL_YOUR_PERSON}"
            )
        case OperationRejected(retry_after_ms=wait) if wait:
            return f"The relay could not do it: {problem}. Wait {wait_words(wait)} and call again."
        case OperationRejected():
            return f"The relay could not do it: {problem}. Call again later."
        case AgentClosed():
            return "The connection to the relay was closed. Call again: it connects anew."
        case _:
            return f"{problem}. {TELL_YOUR_PERSON}"


def _detail(rejection: Rejection) -> str:
    if not rejection.detail or rejection.detail == QUOTA_EXCEEDED_TEXT:
        return ""
    return f": {rejection.detail}"
