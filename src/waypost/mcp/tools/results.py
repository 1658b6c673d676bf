"""Structured results of the tools, for programs."""

from datetime import datetime

from pydantic import BaseModel, Field

# Sending


class MailboxRejection(BaseModel):
    """The rejection of a message by one mailbox."""

    reason: str = Field(description="rate_limited, backpressure, budget_exceeded, …")
    detail: str


class SendOutcome(BaseModel):
    """The outcome of a send."""

    message_id: str = Field(description="Its id; empty if the message was stored nowhere.")
    thread: str = Field(description="The conversation it belongs to, for relay_thread.")
    delivered_to: int = Field(description="How many mailboxes stored it on disk.")
    rejected: list[MailboxRejection]
    retry_after_seconds: int = Field(description="How long to wait, where waiting helps; else 0.")
    what_to_do: str = Field(description="Instructions, if a mailbox rejected it; else empty.")
    note: str = Field(description="Set if no agent has ever connected as the recipient.")
    expires_in_seconds: int | None = Field(
        description="When it expires, if the relay allows less than you asked for; else null."
    )


class ScheduledEntry(BaseModel):
    """A message of this agent that is delivered later."""

    message_id: str
    recipient: str
    deliver_at: datetime


class ScheduledListing(BaseModel):
    """Messages of this agent that are not due yet, those due first at the beginning."""

    messages: list[ScheduledEntry]
    cancelled: list[str] = Field(description="Cancelled now: they are not delivered.")
    not_cancelled: list[str] = Field(description="Not scheduled by you, or due already.")
    is_complete: bool = Field(description="False: there may be more messages than these.")


# The inbox


class AckOutcome(BaseModel):
    """The outcome of an acknowledgement."""

    acknowledged: list[str] = Field(description="Removed from the mailbox now.")
    already: list[str] = Field(description="Acknowledged before.")
    unknown: list[str] = Field(description="Not in this mailbox.")
    unread: int = Field(description="How many messages are unread.")


class NackOutcome(BaseModel):
    """The outcome of returning messages."""

    returned: list[str] = Field(description="Returned to the mailbox, to be delivered again.")
    unknown: list[str] = Field(description="Not in this mailbox.")


# Lookups


class EndpointEntry(BaseModel):
    """A subject with a mailbox."""

    subject: str = Field(description="A name that its owner chose; it proves no authority.")
    waiting: int | None = Field(description="Messages waiting there; null if unknown.")
    connected: bool | None = Field(description="Whether its agent is connected; null if unknown.")


class EndpointListing(BaseModel):
    """Subjects you can send to."""

    endpoints: list[EndpointEntry]
    is_complete: bool = Field(description="False: there are, or may be, more.")
    next: str | None = Field(description="What to give as `after` for more; null at the end.")


class RegisterOutcome(BaseModel):
    """Whether a subject has a mailbox."""

    subject: str
    has_mailbox: bool = Field(description="False: it gets one with its first message.")


class RelaySummary(BaseModel):
    """Statistics of the whole relay."""

    messages: dict[str, int]
    rejected: dict[str, int]
    mailboxes: int
    connected_agents: int
    is_storage_full: bool
    problems: list[str]


class GuardStatus(BaseModel):
    """The limits of this agent's requests, and their use."""

    requests: int = Field(description="Requests of this agent that count now.")
    requests_max: int = Field(description="How many may count before one is blocked.")
    window_seconds: float = Field(description="How long a request counts.")
    circuits: dict[str, str] = Field(
        description="Agents that failed to answer: OPEN blocks requests, HALF_OPEN allows one."
    )
    counters: dict[str, int] = Field(description="Changes of circuits, and blocked requests.")


class AgentStatus(BaseModel):
    """The status of this agent and its relay."""

    subject: str
    relay: str
    connected: bool
    problem: str = Field(description="Why there is no connection; empty if there is one.")
    unread_messages: int
    unread_bytes: int
    unacknowledged: list[str] = Field(description="Messages read and not acknowledged.")
    is_complete: bool = Field(description="False: more messages may wait at the relay.")
    guard: GuardStatus
    numbers: RelaySummary | None = Field(description="Of the whole relay; for operators.")


class HistoryEvent(BaseModel):
    """One event in the history of a message."""

    at: datetime
    what: str
    mailbox: str
    detail: str


class MessageExplanation(BaseModel):
    """The history of a message."""

    message_id: str
    thread: str = Field(description="The conversation it belongs to, for relay_thread.")
    outcome: dict[str, str] = Field(description="By mailbox.")
    steps: list[HistoryEvent]


class ThreadEntry(BaseModel):
    """One message of a conversation, at one mailbox."""

    message_id: str
    at: datetime
    sender: str = Field(description="A name that its owner chose; it proves no authority.")
    recipient: str
    in_reply_to: str | None
    is_answer: bool = Field(description="Whether it went back to who asked.")
    outcome: str
    calls_left: int = Field(description="Messages that may still follow, this one included.")


class ThreadListing(BaseModel):
    """A conversation, in order."""

    thread: str
    messages: list[ThreadEntry]
    is_complete: bool = Field(description="False: there are more messages than these.")
