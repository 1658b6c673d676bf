"""Answers to sends, joined for agents that read batches.

Rule 1  Answers are joined if they are about consecutive sends and say the same: stored in so many
        mailboxes, under the id that the agent chose.
Rule 2  Joined answers count as many as they are for the bound of unanswered sends.
"""

from collections.abc import Callable, Iterable

from waypost.policy.bounds import queue_full_max_operations
from waypost.policy.reasons import Reason
from waypost.wire.frames import Error, FrameOperation, QueueFull, Send, SendResult, SentMany
from waypost.wire.problems import QUEUE_FULL_TEXT, discreet
from waypost.wire.results import PublishResult


def join_answer(responses: list[FrameOperation], request: Send, result: PublishResult) -> bool:
    """Add the answer to a send to a `sent_many`, or begin one; return False if it says more."""
    if (
        result.rejected
        or result.retry_after_ms
        or result.budget_cut
        or result.never_connected
        or not result.message_id
        or result.message_id != request.message_id
    ):
        return False
    ref, delivered_to = request.ref, result.delivered_to
    last = responses[-1] if responses else None
    if type(last) is SentMany and last.last_ref == ref - 1 and last.delivered_to == delivered_to:
        last.last_ref = ref
    else:
        responses.append(SentMany(ref=ref, last_ref=ref, delivered_to=delivered_to))
    return True


def answers_to(
    request: Send, result: PublishResult, subject_of: Callable[[str], str | None], *, shown: bool
) -> list[FrameOperation]:
    """Return the answer to a send on its own, and the recipients whose mailboxes are full.

    `shown`: the agent may see how full mailboxes are. `subject_of` returns the endpoint of a hash.
    """
    seen = result if shown else discreet(result, request.subject)
    answers: list[FrameOperation] = [
        SendResult(
            ref=request.ref,
            message_id=seen.message_id,
            delivered_to=seen.delivered_to,
            rejected=seen.rejected,
            retry_after_ms=seen.retry_after_ms,
            mailbox_pressure=seen.mailbox_pressure,
            budget_cut=seen.budget_cut,
            never_connected=result.never_connected,
        )
    ]
    full = [one for one in result.rejected if one.reason is Reason.BACKPRESSURE]
    answers += (
        QueueFull(
            ref=request.ref,
            recipient=subject_of(one.endpoint_hash) or request.subject,
            reason=QUEUE_FULL_TEXT,
            message_id=result.message_id,
        )
        for one in full[:queue_full_max_operations]
    )
    return answers


def send_error(request: Send, text: str, reason: str) -> Error:
    """Return the answer to a send that failed."""
    return Error(ref=request.ref, error=text, reason=reason)


def count_answers(responses: Iterable[FrameOperation]) -> int:
    """Return the number of responses, those that are joined included."""
    return sum(one.last_ref - one.ref + 1 if type(one) is SentMany else 1 for one in responses)
