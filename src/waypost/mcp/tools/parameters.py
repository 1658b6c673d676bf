"""Arguments of the tools, described for the model that fills them in."""

from typing import Annotated, Any

from pydantic import Field

from waypost.policy.bounds import (
    card_skill_max_chars,
    message_id_length_max_chars,
    subject_length_max_chars,
    wait_max_s,
)

WAIT_MAX_S = 300
DELAY_MAX_S = 24 * 3600
IDS_MAX = 1000
MAX_BYTES_DEFAULT = 16_000
MAX_BYTES_LOWEST = 1000
MAX_BYTES_HIGHEST = 1_000_000

MessageId = Annotated[
    str, Field(min_length=1, max_length=message_id_length_max_chars, pattern="^[A-Za-z0-9_-]+$")
]
Subject = Annotated[str, Field(min_length=1, max_length=subject_length_max_chars)]

Recipient = Annotated[
    Subject | None,
    Field(
        description=(
            "The recipient, such as agent.billing. 'agent.>' reaches every agent under 'agent.'."
            " Optional with in_reply_to: the answer then goes to that message's reply address."
        )
    ),
]
RequestRecipient = Annotated[Subject, Field(description="The agent to ask, such as agent.billing.")]
ResetSubject = Annotated[
    Subject | None,
    Field(description="The agent whose circuit to close. Omit it to reset all limits."),
]
Payload = Annotated[
    str | int | float | bool | list[Any] | dict[str, Any] | None,
    Field(
        description=(
            "The content: text, or any JSON value. The recipient knows nothing else, so include"
            " everything it needs."
        )
    ),
]
InReplyTo = Annotated[
    MessageId | None,
    Field(
        description=(
            "The id of the message from relay_inbox that you answer or act on. Always give it if"
            " there is one: it lets the relay stop endless loops between agents."
        )
    ),
]
ReplyTo = Annotated[
    Subject | None,
    Field(description="The subject that should receive answers, if not you. Rarely needed."),
]
NewThread = Annotated[
    MessageId | None,
    Field(
        description=(
            "Your own id for a conversation that begins here. Not with in_reply_to: an answer"
            " belongs to the conversation of its question."
        )
    ),
]
ThreadId = Annotated[
    MessageId,
    Field(
        description=(
            "The thread of a message, from relay_inbox, relay_send or relay_explain: the id of the"
            " first message, unless its sender chose another."
        )
    ),
]
NewMessageId = Annotated[
    MessageId | None,
    Field(
        description=(
            "Your own id for this message. A message sent twice with the same id is stored once."
        )
    ),
]
ExpiresIn = Annotated[
    float | None,
    Field(
        description="Drop it if it is not read within this many seconds. Default: the relay's.",
        gt=0,
    ),
]
DeliverIn = Annotated[
    float | None,
    Field(
        description=(
            "Deliver it after this many seconds, at most a week by default. Until then,"
            " relay_scheduled lists and cancels it. expires_in_seconds begins then."
        ),
        gt=0,
        le=wait_max_s,
    ),
]
CancelIds = Annotated[
    list[MessageId] | None,
    Field(
        description="Ids of scheduled messages of yours to cancel first. Omit it to only look.",
        max_length=IDS_MAX,
    ),
]
ReplyTimeout = Annotated[
    float,
    Field(
        description=(
            "Seconds to wait for the answer. Some hosts cancel a tool call after 60 seconds."
        ),
        gt=0,
        le=WAIT_MAX_S,
    ),
]
MaxBytes = Annotated[
    int,
    Field(
        description="The maximum bytes of messages to show; a token is about 4 bytes.",
        ge=MAX_BYTES_LOWEST,
        le=MAX_BYTES_HIGHEST,
    ),
]
WaitSeconds = Annotated[
    float,
    Field(
        description="Seconds to wait for a message if the inbox is empty.",
        ge=0,
        le=WAIT_MAX_S,
    ),
]
SingleMessageId = Annotated[
    MessageId | None,
    Field(description="Show only this message, read or unread; a large one in pieces."),
]
Offset = Annotated[
    int,
    Field(description="With message_id: the character of its text to start at.", ge=0),
]
IncludeRead = Annotated[
    bool,
    Field(description="Also show messages that you have read and not acknowledged."),
]
Peek = Annotated[
    bool,
    Field(description="Only look: what is shown stays unread, and nothing is waited for."),
]
AckIds = Annotated[
    list[MessageId],
    Field(
        description="Ids of the messages to acknowledge.",
        min_length=1,
        max_length=IDS_MAX,
    ),
]
NackIds = Annotated[
    list[MessageId],
    Field(
        description="Ids of the messages that you could not process.",
        min_length=1,
        max_length=IDS_MAX,
    ),
]
NackError = Annotated[
    str,
    Field(
        description=(
            "Why you could not, in one sentence. The operator sees it, and a sender that waits for"
            " your answer; reveal no secrets."
        ),
        min_length=1,
    ),
]
NackDelay = Annotated[
    float,
    Field(
        description="Seconds until they are delivered again, at the earliest.",
        ge=0,
        le=DELAY_MAX_S,
    ),
]
Skill = Annotated[
    str | None,
    Field(
        description="One word for what the agent should be able to do, such as python.",
        min_length=1,
        max_length=card_skill_max_chars,
    ),
]
Pattern = Annotated[
    Subject,
    Field(
        description=(
            "A subject, or a pattern such as agent.> in which * matches one token and > the rest."
        )
    ),
]
Limit = Annotated[int, Field(description="The maximum number of results.", ge=1, le=1000)]
After = Annotated[
    Subject | None, Field(description="Continue after this subject: the `next` of the last result.")
]
EndpointSubject = Annotated[Subject, Field(description="The subject that needs a mailbox.")]
ExplainedMessageId = Annotated[
    MessageId, Field(description="The id of a message that you sent or received.")
]
