"""An agent's keys: proofs, and key files."""

import json
import os
import pickle
import stat
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from waypost import InvalidMessage, InvalidSubject
from waypost.client.identity import (
    Identity,
    KeyFileError,
    KeyFileExists,
    KeyFileExposed,
    KeyFileInvalid,
)
from waypost.wire.handshake import from_text, proof_text, sealing_key_text, to_text

NONCE = to_text(bytes(range(32)))
ORIGIN = "relay.example:7000"


@pytest.fixture
def alice() -> Identity:
    return Identity.new("agent.alice")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "alice.key"


def verify(identity: Identity, signature: str | None, text: bytes) -> None:
    """Raise `InvalidSignature` unless the identity signed `text`."""
    assert signature is not None
    key = Ed25519PublicKey.from_public_bytes(from_text(identity.public_key, 32))
    key.verify(from_text(signature, 64), text)


def proof_of(identity: Identity, origin: str) -> bytes:
    return proof_text(
        origin=origin, nonce=NONCE, subject=identity.subject, public_key=identity.public_key
    )


def private_parts(file: Path) -> list[str]:
    content = json.loads(file.read_text())
    return [content["signing_key"], content["sealing_key"]]


def test_every_identity_has_its_own_keys(alice: Identity) -> None:
    other = Identity.new("agent.alice")
    assert alice.public_key != other.public_key
    assert alice.sealing_key != other.sealing_key
    assert len(from_text(alice.public_key)) == len(from_text(alice.sealing_key)) == 32


@pytest.mark.parametrize("subject", ["", "agent.*", "agent..a", "a b", "agent.a\nagent.b"])
def test_an_invalid_subject_gets_no_identity(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        Identity.new(subject)


@pytest.mark.parametrize("subject", ["_relay", "_anonymous", "_x.a"])
def test_a_reserved_name_gets_no_identity(subject: str) -> None:
    with pytest.raises(InvalidMessage, match="belong to the relay"):
        Identity.new(subject)


def test_a_proof_signs_the_challenge_and_its_purpose(alice: Identity) -> None:
    proof = alice.prove(NONCE, ORIGIN)
    assert (proof.subject, proof.public_key) == ("agent.alice", alice.public_key)
    verify(alice, proof.signature, proof_of(alice, ORIGIN))


def test_a_proof_for_one_relay_is_invalid_at_another(alice: Identity) -> None:
    proof = alice.prove(NONCE, ORIGIN)
    with pytest.raises(InvalidSignature):
        verify(alice, proof.signature, proof_of(alice, "elsewhere.example:7000"))


def test_an_origin_is_signed_in_lower_case(alice: Identity) -> None:
    verify(alice, alice.prove(NONCE, "Relay.EXAMPLE:7000").signature, proof_of(alice, ORIGIN))


def test_a_proof_includes_the_sealing_key(alice: Identity) -> None:
    proof = alice.prove(NONCE, ORIGIN, receive="pull")
    assert proof.receive == "pull"
    assert proof.sealing_key == alice.sealing_key
    text = sealing_key_text(subject="agent.alice", sealing_key=alice.sealing_key)
    verify(alice, proof.sealing_signature, text)


@pytest.mark.parametrize("nonce", ["", "short", "x\nagent.mallory", to_text(bytes(33)), "é" * 43])
def test_an_invalid_nonce_is_not_signed(alice: Identity, nonce: str) -> None:
    with pytest.raises(InvalidMessage):
        alice.prove(nonce, ORIGIN)


def test_a_saved_identity_loads_unchanged(alice: Identity, file: Path) -> None:
    alice.save(file)
    again = Identity.load(file)
    assert again.card == alice.card
    verify(alice, again.prove(NONCE, ORIGIN).signature, proof_of(alice, ORIGIN))


def test_only_the_owner_can_read_the_file_whatever_the_umask(alice: Identity, file: Path) -> None:
    before = os.umask(0)
    try:
        alice.save(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_saving_creates_the_directory(alice: Identity, tmp_path: Path) -> None:
    alice.save(tmp_path / "config" / "waypost" / "alice.key")
    assert Identity.load(tmp_path / "config" / "waypost" / "alice.key").card == alice.card


def test_keys_are_not_overwritten(alice: Identity, file: Path) -> None:
    alice.save(file)
    with pytest.raises(KeyFileExists, match="cannot be recovered"):
        Identity.new("agent.alice").save(file)
    assert Identity.load(file).card == alice.card


def test_keys_are_overwritten_on_request(alice: Identity, file: Path) -> None:
    Identity.new("agent.alice").save(file)
    file.chmod(0o644)
    alice.save(file, overwrite=True)
    assert Identity.load(file).card == alice.card
    assert list(file.parent.iterdir()) == [file]


def test_overwriting_works_without_an_existing_file(alice: Identity, file: Path) -> None:
    alice.save(file, overwrite=True)
    assert Identity.load(file).card == alice.card


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o777])
def test_a_file_readable_by_others_is_rejected_with_the_command_to_fix_it(
    alice: Identity, file: Path, mode: int
) -> None:
    alice.save(file)
    file.chmod(mode)
    with pytest.raises(KeyFileExposed, match=f"chmod 600 {file}"):
        Identity.load(file)


def test_a_pipe_a_device_or_a_large_file_is_rejected_without_waiting(file: Path) -> None:
    os.mkfifo(file, 0o600)
    for path in (file, Path("/dev/zero")):
        with pytest.raises(KeyFileInvalid, match="not a regular file"):
            Identity.load(path)
    large = file.with_name("large")
    large.touch(mode=0o600)
    os.truncate(large, 1 << 40)
    with pytest.raises(KeyFileInvalid, match="larger than"):
        Identity.load(large)


def test_a_stricter_mode_is_fine(alice: Identity, file: Path) -> None:
    alice.save(file)
    file.chmod(0o400)
    assert Identity.load(file).card == alice.card


@pytest.mark.parametrize(
    "change",
    [
        {"signing_key": "short"},
        {"sealing_key": to_text(bytes(31))},
        {"subject": "_relay"},
        {"subject": "agent.*"},
        {"version": 2},
        {"more": 1},
    ],
    ids=str,
)
def test_a_file_with_an_invalid_field_is_rejected(
    alice: Identity, file: Path, change: dict[str, object]
) -> None:
    alice.save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(KeyFileInvalid, match="is not a key file"):
        Identity.load(file)


def test_a_truncated_file_is_rejected(alice: Identity, file: Path) -> None:
    alice.save(file)
    whole = file.read_bytes()
    for cut in range(len(whole) - 2):
        file.write_bytes(whole[:cut])
        with pytest.raises(KeyFileInvalid):
            Identity.load(file)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"null", b"[" * 20_000])
def test_any_other_content_is_rejected(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)
    with pytest.raises(KeyFileInvalid):
        Identity.load(file)


def test_a_path_that_is_not_a_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(KeyFileInvalid):
        Identity.load(tmp_path)
    with pytest.raises(KeyFileInvalid, match="No such file"):
        Identity.load(tmp_path / "none.key")


def test_a_failed_write_is_reported(alice: Identity, file: Path) -> None:
    file.touch()
    with pytest.raises(KeyFileError, match="cannot write"):
        alice.save(file / "inside-a-file.key")


def test_private_keys_are_not_in_the_repr(alice: Identity, file: Path) -> None:
    alice.save(file)
    shown = f"{alice!r} {alice} {alice.card!r} {alice.prove(NONCE, ORIGIN)!r}"
    assert alice.public_key in shown
    assert not any(secret in shown for secret in private_parts(file))


def test_private_keys_cannot_be_pickled_by_accident(alice: Identity) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(alice)
