"""Messages to publish: validated, encoded and given a budget before any decision."""

from collections.abc import Iterable, Mapping

from waypost.policy.admission import SenderVerdict
from waypost.policy.bounds import publish_many_max_messages
from waypost.policy.budgets import Budget, budget_cut, inherited, is_answer, shrink
from waypost.policy.errors import InvalidInput, InvalidMessage
from waypost.policy.schedules import due_time_us
from waypost.policy.settings import Settings
from waypost.policy.subjects import is_subject, validate_subject
from waypost.wire.envelopes import Envelope
from waypost.wire.events import Accepted, Rejected
from waypost.wire.identifiers import validate_message_id, validate_thread
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import encode_payload


class Draft(OutgoingMessage, frozen=True, gc=False, kw_only=True):
    """A message to publish, with its sender.

    `network` stands for the network of a sender that shares its name with others.
    """

    sender: str
    network: str = ""


def drafts_from(wanted: Iterable[Draft | Mapping[str, object]]) -> list[Draft]:
    """Return drafts, some given by their fields. Raises `InvalidInput` for too many, or for
    unknown or missing fields."""
    drafts = [one if isinstance(one, Draft) else _draft_from(one) for one in wanted]
    if len(drafts) > publish_many_max_messages:
        raise InvalidInput(f"publish at most {publish_many_max_messages:,} messages at once")
    return drafts


def _draft_from(fields: Mapping[str, object]) -> Draft:
    try:
        return Draft(**fields)  # type: ignore[arg-type]
    except TypeError as problem:
        raise InvalidInput(f"not a message to publish: {problem}") from None


def encode_draft(draft: Draft, settings: Settings) -> bytes:
    """Validate a draft; return its payload as JSON. Raise `InvalidSubject` or `InvalidMessage`."""
    if not is_subject(draft.subject):
        validate_subject(draft.subject, allow_wildcards=True)
    if not is_subject(draft.sender):
        validate_subject(draft.sender)
    if draft.reply_to is not None and not is_subject(draft.reply_to):
        validate_subject(draft.reply_to)
    if draft.message_id is not None:
        validate_message_id(draft.message_id)
    if draft.thread is not None:
        validate_thread(draft.thread)
    content = encode_payload(draft.payload)
    if len(content) > settings.max_payload_bytes:
        raise InvalidMessage(
            f"payload of {len(content):,} bytes is over the limit of"
            f" {settings.max_payload_bytes:,} bytes (max_payload_bytes)"
        )
    return content


def due_us(draft: Draft, settings: Settings, now_us: int) -> int:
    """Return when a draft is due (µs); 0 if it is not scheduled. Raise `InvalidMessage`."""
    return due_time_us(draft.delay, draft.deliver_at, now_us, settings.max_schedule_ahead_ms)


def initial_budget(draft: Draft, settings: Settings, now_ms: int) -> Budget:
    """Return the budget of a draft: the relay's, narrowed by its parent's and its own.

    Its time begins when the message is due. Raise `InvalidMessage` if that cannot be.
    """
    if draft.delay is not None or draft.deliver_at is not None:
        now_ms = max(now_ms, due_us(draft, settings, now_ms * 1000) // 1000)
    budget = Budget(
        max_hops=settings.max_hops,
        ttl=now_ms + settings.default_ttl_ms,
        call_budget_remaining=settings.default_call_budget,
    )
    parent: object = draft.parent
    if parent is not None:
        if not isinstance(parent, Envelope):
            raise InvalidMessage(f"parent must be an Envelope, not {type(parent).__name__}")
        budget = shrink(budget, inherited(parent, draft.sender, draft.subject))
    wish: object = draft.budget
    if wish is not None:
        if not isinstance(wish, Budget | Mapping):
            raise InvalidMessage(f"budget must be a Budget or a mapping, not {type(wish).__name__}")
        budget = shrink(budget, wish)
    return budget


def arrival_of(
    draft: Draft, message_id: str, budget: Budget, rate: SenderVerdict, now_us: int
) -> Accepted:
    """Return the arrival of a draft, at no endpoint yet; fields that mostly have their default are
    set only otherwise."""
    event = Accepted(
        at_us=now_us,
        id=message_id,
        sender=draft.sender,
        subject=draft.subject,
        budget=budget,
        rate_count=rate.count,
        rate_limit=rate.limit,
    )
    if draft.reply_to is not None:
        event.reply_to = draft.reply_to
    if draft.parent is not None or draft.thread is not None:
        join_conversation(event, draft)
    if draft.message_id is not None:
        event.chosen_id = True
    if draft.budget is not None:
        event.budget_cut = budget_cut(draft.budget, budget)
    if draft.network:
        event.network = draft.network
    return event


def join_conversation(arrival: Accepted | Rejected, draft: Draft) -> None:
    """Set the parent of an arrival, its thread, and whether it is an answer.

    The thread is that of the parent. Without a parent, a conversation begins: its id is the one
    that the sender chose, or that of this message.
    """
    parent, thread = draft.parent, draft.thread
    if parent is not None:
        arrival.parent = parent.id
        arrival.answer = is_answer(parent, draft.sender, draft.subject)
        thread = parent.thread or parent.id
    if thread is not None and thread != arrival.id:
        arrival.thread = thread
