"""Messages to send: the same fields in every form."""

import pytest

from waypost.client.message import Outgoing
from waypost.policy.errors import InvalidMessage, InvalidSubject
from waypost.relay.delivery.drafts import Draft
from waypost.wire.frames import Send
from waypost.wire.http_bodies import NewMessage
from waypost.wire.outgoing import OutgoingMessage

FIELDS = OutgoingMessage.__struct_fields__


@pytest.mark.parametrize(
    ("form", "own_fields"),
    [(Draft, ("sender", "network")), (Outgoing, ("seal_to", "reply_within")), (NewMessage, ())],
)
def test_every_form_adds_only_its_own_fields(
    form: type[OutgoingMessage], own_fields: tuple[str, ...]
) -> None:
    assert form.__struct_fields__ == (*FIELDS, *own_fields)


def test_a_send_frame_has_the_fields_of_a_message_after_its_ref() -> None:
    assert Send.__struct_fields__ == ("ref", *FIELDS, "reply_within")


@pytest.mark.parametrize("subject", ["agent.a", "agent.>", "agent.*"])
def test_a_message_may_go_to_a_subject_or_a_pattern(subject: str) -> None:
    OutgoingMessage(subject, {"n": 1}, reply_to="agent.b", message_id="id-1").check()


def test_a_reply_address_is_never_a_pattern() -> None:
    with pytest.raises(InvalidSubject):
        OutgoingMessage("agent.a", 1, reply_to="agent.>").check()


def test_an_invalid_id_is_rejected() -> None:
    with pytest.raises(InvalidMessage):
        OutgoingMessage("agent.a", 1, message_id="not/an/id").check()
