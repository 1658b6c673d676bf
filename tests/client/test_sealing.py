"""Sealed payloads: readable by the recipient only, and bound to one message."""

import json
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.small_order_keys import ANY_TEXT_SIGNATURE, IDENTITY
from waypost import InvalidMessage
from waypost.client import sealing
from waypost.client.identity import Identity
from waypost.client.sealing import (
    CardInvalid,
    SealBroken,
    check_card,
    is_sealed,
    seal,
    sealer_of,
    unseal,
)
from waypost.wire.handshake import from_text, sealing_key_text, to_text
from waypost.wire.payloads import encode_payload
from waypost.wire.sealing import (
    MARK,
    Card,
    Circumstances,
    Parties,
    Sealed,
    context_text,
    signed_text,
)

ALICE = Identity.new("agent.alice")
BOBS_KEYS = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
BOB = Identity("agent.bob", *BOBS_KEYS)
MALLORY = Identity.new("agent.mallory")
ID = "message-1"
NOW_MS = 1_700_000_000_000
UNDER = Circumstances(sealed_at=NOW_MS, reply_to="agent.alice.replies", parent="message-0")

KEPT_BOB = Identity(
    "agent.bob",
    Ed25519PrivateKey.from_private_bytes(bytes([3]) * 32),
    X25519PrivateKey.from_private_bytes(bytes([4]) * 32),
)
KEPT = {
    "waypost": "sealed-1",
    "by": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w",
    "ephemeral": "HHOa_VNMPfwTMdbpw9wSDo-A73i3_uJPJcntNiSMdGw",
    "content": "k5wPCmQUXV-PG4TtmFgvWs5gXSX7xT7zR1N7JYQdwtU",
    "signature": "QJSrWGG3wFLhN0p98dbR-lARapviNSofyTS-lEW6Fi0b"
    "YBqXmbhrNDLqFUK68UC9Nq5siKeNMJHK1x8a6LddCQ",
}
"""A payload that version 1 sealed to `KEPT_BOB`."""

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=5)
    ),
    max_leaves=20,
)


def sealed_for_bob(payload: object = "secret", message_id: str = ID) -> dict[str, Any]:
    return seal(payload, to=BOB.card, by=ALICE, message_id=message_id, under=UNDER)


def opened_by_bob(payload: object, **instead: Any) -> Any:
    how: dict[str, Any] = {"as_": BOB, "sender": "agent.alice", "message_id": ID}
    return unseal(payload, **how | instead)


def signed_by(sender: Identity, ephemeral: str, content: str) -> dict[str, Any]:
    """Return a seal with arbitrary content and a valid signature, from `sender` to Bob."""
    parties = Parties(
        message_id=ID,
        sender=sender.subject,
        sender_key=sender.public_key,
        recipient="agent.bob",
        recipient_key=BOB.sealing_key,
    )
    under = Circumstances(sealed_at=NOW_MS)
    signature = sender.sign(signed_text(context_text(parties, ephemeral, under), content))
    sealed = Sealed(
        waypost=MARK,
        by=sender.public_key,
        ephemeral=ephemeral,
        sealed_at=NOW_MS,
        content=content,
        signature=signature,
    )
    fields: dict[str, Any] = msgspec.to_builtins(sealed)
    return fields


def sealed_with_content(content: str) -> dict[str, Any]:
    """Seal a text that `seal` itself would reject."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "encode_payload", lambda payload: payload.encode())
        return sealed_for_bob(content)


@given(payload=json_values)
def test_the_recipient_can_unseal_the_payload(payload: object) -> None:
    sealed = json.loads(encode_payload(sealed_for_bob(payload)))
    assert is_sealed(sealed)
    assert opened_by_bob(sealed, sender_key=ALICE.public_key) == payload


def test_a_sealed_payload_survives_msgpack() -> None:
    sealed = msgspec.msgpack.decode(msgspec.msgpack.encode(sealed_for_bob([1, 2])))
    assert opened_by_bob(sealed) == [1, 2]


def test_a_large_payload_can_be_sealed() -> None:
    payload = "x" * 1_000_000
    assert opened_by_bob(sealed_for_bob(payload)) == payload


def test_a_sealed_payload_reveals_no_content() -> None:
    sealed = sealed_for_bob({"word": "rumpelstiltskin"})
    assert b"rumpelstiltskin" not in encode_payload(sealed)
    assert b"rumpelstiltskin" not in from_text(sealed["content"])


def test_the_same_payload_is_sealed_differently_each_time() -> None:
    one, two = sealed_for_bob(), sealed_for_bob()
    assert one["ephemeral"] != two["ephemeral"]
    assert one["content"] != two["content"]


@settings(max_examples=200)
@given(
    field=st.sampled_from(["by", "ephemeral", "content", "signature"]),
    position=st.integers(0, 10_000),
    change=st.integers(1, 255),
)
def test_a_changed_byte_breaks_the_seal(field: str, position: int, change: int) -> None:
    sealed = sealed_for_bob({"amount": 12})
    raw = bytearray(from_text(sealed[field]))
    raw[position % len(raw)] ^= change
    with pytest.raises(SealBroken):
        opened_by_bob(sealed | {field: to_text(bytes(raw))})


@pytest.mark.parametrize("field", ["by", "ephemeral", "content", "signature"])
def test_a_part_of_another_seal_breaks_the_seal(field: str) -> None:
    other = seal("other", to=BOB.card, by=MALLORY, message_id=ID, under=UNDER)
    with pytest.raises(SealBroken):
        opened_by_bob(sealed_for_bob() | {field: other[field]})


@pytest.mark.parametrize(
    "change",
    [
        {"sealed_at": NOW_MS + 1},
        {"reply_to": "agent.mallory"},
        {"reply_to": None},
        {"parent": "message-00"},
        {"parent": None},
        {"reply_to": "message-0", "parent": "agent.alice.replies"},
        {"waypost": "sealed-1"},
    ],
    ids=str,
)
def test_reply_address_parent_and_time_are_part_of_the_seal(change: dict[str, Any]) -> None:
    sealed = sealed_for_bob()
    assert opened_by_bob(sealed) == "secret"
    with pytest.raises(SealBroken):
        opened_by_bob(sealed | change)


def test_a_seal_of_version_2_is_not_one_of_version_1() -> None:
    sealed = sealed_for_bob()
    older = {name: sealed[name] for name in ("by", "ephemeral", "content", "signature")}
    with pytest.raises(SealBroken):
        opened_by_bob({"waypost": "sealed-1", **older})


def test_a_deeply_nested_sealed_payload_does_not_open() -> None:
    deep = "[" * 60 + "]" * 60
    assert opened_by_bob(sealed_for_bob(msgspec.Raw(deep.encode()))) == json.loads(deep)
    sealed = sealed_with_content("[" * 500 + "]" * 500)
    with pytest.raises(SealBroken, match="nested too deeply"):
        opened_by_bob(sealed)


@pytest.mark.parametrize(
    "instead",
    [
        {"message_id": "message-2"},
        {"sender": "agent.mallory"},
        {"as_": MALLORY},
        {"as_": Identity("agent.bob.other", *BOBS_KEYS)},
        {"sender_key": MALLORY.public_key},
        {"sender_key": ""},
        {"sender": "agent.alice\nagent.bob"},
        {"message_id": "message 1"},
        {"message_id": ""},
    ],
)
def test_a_seal_is_for_one_message_one_sender_and_one_recipient(instead: dict[str, Any]) -> None:
    with pytest.raises(SealBroken):
        opened_by_bob(sealed_for_bob(), **instead)


def test_a_sender_cannot_pass_off_the_content_of_another_as_its_own() -> None:
    stolen = sealed_for_bob()
    forged = signed_by(MALLORY, stolen["ephemeral"], stolen["content"])
    with pytest.raises(SealBroken):
        opened_by_bob(forged, sender="agent.mallory")


def test_a_recipient_cannot_forward_a_seal_to_another_recipient() -> None:
    carol = Identity.new("agent.carol")
    with pytest.raises(SealBroken):
        opened_by_bob(sealed_for_bob(), as_=carol)


def test_the_key_of_the_sealer_is_returned() -> None:
    assert sealer_of(sealed_for_bob()) == ALICE.public_key


def test_a_forged_key_is_detected_with_the_card_of_the_sender() -> None:
    impostor = Identity.new("agent.alice")
    sealed = seal("trust me", to=BOB.card, by=impostor, message_id=ID, under=UNDER)
    assert sealer_of(sealed) != ALICE.public_key
    with pytest.raises(SealBroken, match="another key"):
        opened_by_bob(sealed, sender_key=ALICE.card.public_key)


@pytest.mark.parametrize("payload", [None, 1, "text", [], {}, {"waypost": "sealed-3"}], ids=str)
def test_an_unsealed_payload_is_recognized_and_rejected(payload: object) -> None:
    assert not is_sealed(payload)
    with pytest.raises(SealBroken):
        opened_by_bob(payload)
    with pytest.raises(SealBroken):
        sealer_of(payload)


@given(
    payload=st.fixed_dictionaries(
        {"waypost": st.sampled_from(["sealed-1", "sealed-2"])},
        optional=dict.fromkeys(("by", "ephemeral", "content", "signature", "x"), json_values),
    )
)
def test_garbage_marked_as_sealed_is_a_broken_seal(payload: dict[str, Any]) -> None:
    assert is_sealed(payload)
    with pytest.raises(SealBroken):
        opened_by_bob(payload)


def test_an_extra_field_breaks_the_seal() -> None:
    with pytest.raises(SealBroken):
        opened_by_bob(sealed_for_bob() | {"note": "added on the way"})


def test_a_low_order_ephemeral_key_breaks_the_seal() -> None:
    with pytest.raises(SealBroken):
        opened_by_bob(signed_by(ALICE, to_text(bytes(32)), to_text(bytes(32))))


@pytest.mark.parametrize("message_id", ["", "a b", "a\nb", "x" * 65])
def test_an_invalid_message_id_is_rejected(message_id: str) -> None:
    with pytest.raises(InvalidMessage):
        sealed_for_bob(message_id=message_id)


@pytest.mark.parametrize("payload", [b"bytes", object(), {"a": 1j}])
def test_a_value_that_json_cannot_hold_is_not_sealed(payload: object) -> None:
    with pytest.raises(InvalidMessage):
        sealed_for_bob(payload)


def test_the_card_of_an_identity_is_valid() -> None:
    assert check_card(BOB.card) == BOB.sealing_key


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "agent.mallory"},
        {"public_key": MALLORY.public_key},
        {"sealing_key": MALLORY.sealing_key},
        {"sealing_signature": MALLORY.card.sealing_signature},
        {"sealing_key": None},
        {"sealing_signature": None},
        {"sealing_key": "short"},
        {"public_key": "not a key"},
        {"sealing_signature": "é"},
        {"subject": "\ud800"},
    ],
)
def test_a_card_with_a_replaced_part_is_rejected(change: dict[str, Any]) -> None:
    card = msgspec.structs.replace(BOB.card, **change)
    with pytest.raises(CardInvalid):
        seal("secret", to=card, by=ALICE, message_id=ID, under=UNDER)


def test_a_signed_low_order_sealing_key_is_rejected() -> None:
    zero = to_text(bytes(32))
    card = Card(
        subject="agent.mallory",
        public_key=MALLORY.public_key,
        sealing_key=zero,
        sealing_signature=MALLORY.sign(sealing_key_text(subject="agent.mallory", sealing_key=zero)),
    )
    with pytest.raises(CardInvalid, match="low order"):
        seal("secret", to=card, by=ALICE, message_id=ID, under=UNDER)


def test_a_payload_sealed_by_an_earlier_version_can_be_unsealed() -> None:
    assert opened_by_bob(KEPT, as_=KEPT_BOB) == {"text": "hello"}


def test_a_card_with_a_key_of_small_order_is_invalid() -> None:
    forged = Card(
        subject="agent.bob",
        public_key=IDENTITY,
        sealing_key=MALLORY.sealing_key,
        sealing_signature=ANY_TEXT_SIGNATURE,
    )
    with pytest.raises(CardInvalid, match="not signed by its owner"):
        check_card(forged)


def test_a_seal_by_a_key_of_small_order_does_not_open() -> None:
    class Forger(Identity):
        def sign(self, text: bytes) -> str:
            return ANY_TEXT_SIGNATURE

    forger = Forger("agent.alice", Ed25519PrivateKey.generate(), X25519PrivateKey.generate())
    forger.public_key = IDENTITY
    sealed = seal("forged", to=BOB.card, by=forger, message_id=ID, under=UNDER)
    with pytest.raises(SealBroken, match="small order"):
        opened_by_bob(sealed)
