"""What tools take, described for the model that fills it in."""

from typing import Annotated, Any

from pydantic import Field

from waypost.policy.bounds import message_id_length_max_chars, subject_length_max_chars

WAIT_MAX_S = 300
IDS_MAX = 1000
MAX_BYTES_DEFAULT = 16_000
MAX_BYTES_LEAST = 1000
MAX_BYTES_MOST = 1_000_000

MessageId = Annotated[
    str, Field(min_length=1, max_length=message_id_length_max_chars, pattern="^[A-Za-z0-9_-]+$")
]
Subject = Annotated[str, Field(min_length=1, max_length=subject_length_max_chars)]

Recipient = Annotated[
    Subject | None,
    Field(
        description=(
            "Whom to write to, such as agent.billing. 'agent.>' reaches everyone under agent. Leave"
            " it out with in_reply_to: then the answer goes where the message wants it."
        )
    ),
]
Asked = Annotated[Subject, Field(description="Whom to ask, such as agent.billing.")]
Payload = Annotated[
    str | int | float | bool | list[Any] | dict[str, Any] | None,
    Field(
        description=(
            "What to say: text, or any JSON value. The recipient knows nothing but this, so put in"
            " all it needs."
        )
    ),
]
InReplyTo = Annotated[
    MessageId | None,
    Field(
        description=(
            "The id of the message from relay_inbox that you answer or act upon. Always give it"
            " when there is one: it is how endless loops between agents are stopped."
        )
    ),
]
ReplyTo = Annotated[
    Subject | None,
    Field(description="Where answers should go instead of to you. Seldom needed."),
]
OwnId = Annotated[
    MessageId | None,
    Field(
        description=(
            "An id of your own for this message. Sent twice with the same id, it is stored once."
        )
    ),
]
ExpiresIn = Annotated[
    float | None,
    Field(
        description="Drop it if it is not read within so many seconds. Default: as the relay says.",
        gt=0,
    ),
]
AnswerWithin = Annotated[
    float,
    Field(
        description=(
            "How many seconds to wait for the answer. Some programs give up on a tool after 60."
        ),
        gt=0,
        le=WAIT_MAX_S,
    ),
]
MaxBytes = Annotated[
    int,
    Field(
        description="How many bytes of messages to show at most; about 4 bytes make a token.",
        ge=MAX_BYTES_LEAST,
        le=MAX_BYTES_MOST,
    ),
]
MailWithin = Annotated[
    float,
    Field(
        description="If nothing is there, how many seconds to wait for a message.",
        ge=0,
        le=WAIT_MAX_S,
    ),
]
OneMessage = Annotated[
    MessageId | None,
    Field(description="Show this message only, read or not. For large ones, in pieces."),
]
Offset = Annotated[
    int,
    Field(description="With message_id: at which character of its text to begin.", ge=0),
]
IncludeRead = Annotated[
    bool,
    Field(description="Show messages again that you have read and not acknowledged."),
]
DoneIds = Annotated[
    list[MessageId],
    Field(
        description="Ids of messages you are done with.",
        min_length=1,
        max_length=IDS_MAX,
    ),
]
Pattern = Annotated[
    Subject,
    Field(
        description=(
            "Which ones: a subject, or a pattern in which * stands for one token and > for the"
            " rest, such as agent.>"
        )
    ),
]
Limit = Annotated[int, Field(description="How many at most.", ge=1, le=1000)]
After = Annotated[
    Subject | None, Field(description="Go on behind this subject: the `next` of the answer before.")
]
NewEndpoint = Annotated[Subject, Field(description="The subject that needs a mailbox.")]
WhichMessage = Annotated[
    MessageId, Field(description="The id of a message that you have sent or received.")
]
