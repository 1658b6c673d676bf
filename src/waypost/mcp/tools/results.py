"""What `relay_status` and the tools beside it tell, as facts for programs."""

from datetime import datetime

from pydantic import BaseModel, Field


class EndpointSeen(BaseModel):
    """A subject with a mailbox."""

    subject: str
    waiting: int | None = Field(description="Messages waiting there; null where not told.")
    connected: bool | None = Field(description="Whether its agent is connected now, if told.")


class EndpointsSeen(BaseModel):
    """Who can be written to."""

    endpoints: list[EndpointSeen]
    is_complete: bool = Field(description="False: there are, or may be, others.")
    next: str | None = Field(description="What to give as `after` for more; null at the end.")


class Registered(BaseModel):
    """Whether a subject can be written to."""

    subject: str
    has_mailbox: bool = Field(description="False: it gets one with its first message.")


class RelayNumbers(BaseModel):
    """What the operator sees."""

    messages: dict[str, int]
    rejected: dict[str, int]
    mailboxes: int
    connected_agents: int
    is_storage_full: bool
    problems: list[str]


class Status(BaseModel):
    """How this agent and its relay are."""

    subject: str
    relay: str
    connected: bool
    problem: str = Field(description="Why there is no connection; empty if there is one.")
    unread_messages: int
    unread_bytes: int
    unacknowledged: list[str] = Field(description="Messages read and not acknowledged.")
    is_complete: bool = Field(description="False: more may wait at the relay.")
    numbers: RelayNumbers | None = Field(description="Of the whole relay; for operators.")


class Step(BaseModel):
    """One thing that happened."""

    at: datetime
    what: str
    mailbox: str
    detail: str


class Explained(BaseModel):
    """The story of a message."""

    message_id: str
    outcome: dict[str, str] = Field(description="By mailbox.")
    steps: list[Step]
