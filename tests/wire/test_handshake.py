"""The signed texts, and the encoding of keys."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.small_order_keys import Point, encodings, small_order_points
from waypost.policy.errors import InvalidMessage, InvalidSubject
from waypost.wire.handshake import (
    KEY_BYTES,
    from_text,
    proof_text,
    sealing_key_text,
    signing_key_from,
    to_text,
    validate_agent_subject,
)

PARTS = {"origin": "h:1", "nonce": "n", "subject": "agent.a", "public_key": "k"}


def test_a_proof_names_its_purpose_the_relay_the_nonce_the_subject_and_the_key() -> None:
    assert proof_text(**PARTS) == b"waypost-auth-1\nh:1\nn\nagent.a\nk"


@pytest.mark.parametrize("part", PARTS)
def test_a_proof_changes_with_each_of_its_parts(part: str) -> None:
    assert proof_text(**{**PARTS, part: "other"}) != proof_text(**PARTS)


def test_a_signature_for_one_purpose_is_invalid_for_another() -> None:
    sealing = sealing_key_text(subject="agent.a", sealing_key="k")
    assert sealing == b"waypost-sealing-key-1\nagent.a\nk"
    assert not proof_text(**PARTS).startswith(sealing.split(b"\n", maxsplit=1)[0])


@given(st.binary(max_size=100))
def test_bytes_survive_a_round_trip_as_text(raw: bytes) -> None:
    assert from_text(to_text(raw)) == raw
    assert from_text(to_text(raw), len(raw)) == raw


@given(st.binary(max_size=40), st.integers(0, 40))
def test_an_unexpected_length_is_rejected(raw: bytes, length: int) -> None:
    if len(raw) != length:
        with pytest.raises(InvalidMessage):
            from_text(to_text(raw), length)


@given(st.text(max_size=60))
def test_every_accepted_text_is_the_canonical_encoding_of_its_bytes(text: str) -> None:
    try:
        raw = from_text(text)
    except InvalidMessage:
        return
    assert to_text(raw) == text


@pytest.mark.parametrize(
    "text",
    [
        "A" * 43 + "=",  # padded
        "A" * 42 + "B",  # unused bits set
        "A" * 42 + "+",
        "A" * 42 + "/",
        " " + "A" * 42,
        "A" * 42 + "\n",
        "A" * 41,
        "\u0410" * 43,
        "",
    ],
)
def test_a_key_has_one_encoding_only(text: str) -> None:
    with pytest.raises(InvalidMessage):
        from_text(text, KEY_BYTES)


@pytest.mark.parametrize("point", small_order_points())
def test_a_signing_key_of_small_order_is_rejected_in_every_encoding(point: Point) -> None:
    assert encodings(point)
    for key in encodings(point):
        with pytest.raises(InvalidMessage, match="small order"):
            signing_key_from(key)


def test_a_signing_key_has_one_encoding_only() -> None:
    for y in range(2**255 - 19, 2**255):
        for sign in (0, 1 << 255):
            with pytest.raises(InvalidMessage):
                signing_key_from(to_text((y | sign).to_bytes(32, "little")))


@given(st.binary(min_size=32, max_size=32))
def test_any_private_key_has_an_acceptable_public_key(seed: bytes) -> None:
    raw = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    assert signing_key_from(to_text(raw)) == raw


def test_an_agent_may_use_any_subject() -> None:
    assert validate_agent_subject("agent.billing._x") == "agent.billing._x"


@pytest.mark.parametrize("subject", ["_relay", "_anonymous", "_x.agent"])
def test_an_agent_cannot_use_a_reserved_name(subject: str) -> None:
    with pytest.raises(InvalidMessage, match="belong to the relay"):
        validate_agent_subject(subject)


@pytest.mark.parametrize("subject", ["", "agent.*", ">", "agent..a", "agent.\u0430", "a" * 256])
def test_an_agent_cannot_use_an_invalid_subject(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        validate_agent_subject(subject)
