"""Authentication of agents and of the operator."""

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.server.identity.proofs import HOST, fields_of, log_in
from waypost import InvalidMessage
from waypost.client.identity import Identity
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.server.identity import errors
from waypost.server.identity.authenticator import Authenticator
from waypost.server.identity.errors import NotAuthenticated, SubjectTaken
from waypost.testing import ManualClock
from waypost.wire.handshake import proof_text, sealing_key_text, to_text

ALICE = Identity.new("agent.alice")
MALLORY = Identity.new("agent.mallory")

Reopen = Callable[[], Authenticator]


def flipped(text: str) -> str:
    return ("B" if text[0] == "A" else "A") + text[1:]


def test_an_agent_that_signs_the_challenge_is_authenticated(authenticator: Authenticator) -> None:
    grant = log_in(authenticator, ALICE)
    assert grant.subject == "agent.alice"
    assert authenticator.subject_of_token(grant.token) == "agent.alice"


def test_the_token_is_valid_for_fifteen_minutes(
    authenticator: Authenticator, clock: ManualClock
) -> None:
    grant = log_in(authenticator, ALICE)
    assert grant.expires_at == clock() // 1000 + 15 * 60_000
    clock.advance_ms(15 * 60_000)
    assert authenticator.subject_of_token(grant.token) == "agent.alice"
    clock.advance_ms(1)
    assert authenticator.subject_of_token(grant.token) is None


def test_a_replayed_proof_is_rejected(authenticator: Authenticator) -> None:
    nonce = authenticator.challenge()
    proof = fields_of(ALICE.prove(nonce, HOST), nonce)
    authenticator.authenticate(**proof)
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate(**proof)


def test_a_challenge_that_was_never_issued_is_rejected(authenticator: Authenticator) -> None:
    nonce = to_text(bytes(32))
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate(**fields_of(ALICE.prove(nonce, HOST), nonce))


def test_an_expired_challenge_is_rejected(authenticator: Authenticator, clock: ManualClock) -> None:
    nonce = authenticator.challenge()
    clock.advance_ms(60_001)
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate(**fields_of(ALICE.prove(nonce, HOST), nonce))


@pytest.mark.parametrize(
    "wrong",
    [
        {"signature": flipped(ALICE.prove(to_text(bytes(32)), HOST).signature)},
        {"signature": "not base64url!"},
        {"subject": "_relay"},
        {"public_key": MALLORY.public_key},
        {"sealing_signature": None},
    ],
    ids=["forged", "garbled", "reserved", "another key", "half a sealing key"],
)
def test_a_failed_attempt_uses_up_its_challenge(
    authenticator: Authenticator, wrong: dict[str, Any]
) -> None:
    nonce = authenticator.challenge()
    proof = fields_of(ALICE.prove(nonce, HOST), nonce)
    with pytest.raises(WaypostError):
        authenticator.authenticate(**proof | wrong)
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate(**proof)


@pytest.mark.parametrize(
    "instead",
    [
        {"subject": "agent.bob"},
        {"public_key": MALLORY.public_key},
        {"origins": ["elsewhere.example:7000"]},
        {"origins": ["relay.example:7001", "relay.example"]},
        {"origins": []},
        {"signature": MALLORY.sign(b"something else")},
    ],
)
def test_a_signature_of_another_text_is_rejected(
    authenticator: Authenticator, instead: dict[str, Any]
) -> None:
    with pytest.raises(NotAuthenticated):
        log_in(authenticator, ALICE, **instead)


def test_a_sealing_signature_is_no_proof(authenticator: Authenticator) -> None:
    with pytest.raises(NotAuthenticated):
        log_in(authenticator, ALICE, signature=ALICE.card.sealing_signature)


def test_a_signature_over_the_challenge_alone_is_no_proof(authenticator: Authenticator) -> None:
    nonce = authenticator.challenge()
    proof = fields_of(ALICE.prove(nonce, HOST), nonce)
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate(**proof | {"signature": ALICE.sign(nonce.encode())})


def test_every_failed_proof_has_the_same_error(authenticator: Authenticator) -> None:
    texts = set()
    for instead in ({"origins": ["x:1"]}, {"nonce": to_text(bytes(32))}, {"subject": "agent.x"}):
        with pytest.raises(NotAuthenticated) as rejected:
            log_in(authenticator, ALICE, **instead)
        texts.add(str(rejected.value))
    assert len(texts) == 1


@pytest.mark.parametrize(
    "instead",
    [
        {"subject": "_relay"},
        {"subject": "_anonymous"},
        {"subject": "_x.agent"},
        {"subject": "agent.*"},
        {"subject": "agent.alice\nagent.bob"},
        {"subject": ""},
        {"public_key": to_text(bytes(31))},
        {"public_key": ALICE.public_key + "="},
        {"signature": to_text(bytes(63))},
        {"sealing_key": None},
        {"sealing_signature": None},
        {"sealing_key": to_text(bytes(31))},
        {"sealing_signature": MALLORY.card.sealing_signature},
    ],
)
def test_a_malformed_proof_is_invalid_input(
    authenticator: Authenticator, instead: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        log_in(authenticator, ALICE, **instead)
    assert authenticator.card("agent.alice") is None


def test_reserved_names_cannot_be_bound_even_with_a_valid_signature(
    authenticator: Authenticator,
) -> None:
    key = Ed25519PrivateKey.generate()
    public_key = to_text(key.public_key().public_bytes_raw())
    nonce = authenticator.challenge()
    text = proof_text(origin=HOST, nonce=nonce, subject="_relay", public_key=public_key)
    with pytest.raises(InvalidMessage, match="belong to the relay"):
        authenticator.authenticate(
            subject="_relay",
            public_key=public_key,
            signature=to_text(key.sign(text)),
            nonce=nonce,
            origins=[HOST],
        )


def test_a_subject_belongs_to_the_first_key(authenticator: Authenticator) -> None:
    log_in(authenticator, ALICE)
    with pytest.raises(SubjectTaken, match=r"agent\.alice"):
        log_in(authenticator, Identity.new("agent.alice"))
    assert log_in(authenticator, ALICE).subject == "agent.alice"


def test_a_subject_still_belongs_to_its_key_after_a_restart(reopen: Reopen) -> None:
    log_in(reopen(), ALICE)
    with pytest.raises(SubjectTaken):
        log_in(reopen(), Identity.new("agent.alice"))


def test_one_of_many_concurrent_keys_gets_the_subject(authenticator: Authenticator) -> None:
    def attempt(_: int) -> str:
        identity = Identity.new("agent.wanted")
        try:
            log_in(authenticator, identity)
        except SubjectTaken:
            return ""
        return identity.public_key

    with ThreadPoolExecutor(8) as threads:
        winners = [one for one in threads.map(attempt, range(40)) if one]
    card = authenticator.card("agent.wanted")
    assert card is not None
    assert winners == [card.public_key]


def test_one_key_may_hold_several_subjects(authenticator: Authenticator) -> None:
    signing, sealing = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
    for subject in ("agent.one", "agent.two"):
        assert log_in(authenticator, Identity(subject, signing, sealing)).subject == subject


def test_tokens_survive_a_restart(reopen: Reopen) -> None:
    token = log_in(reopen(), ALICE).token
    assert reopen().subject_of_token(token) == "agent.alice"


def test_challenges_do_not_survive_a_restart(reopen: Reopen) -> None:
    nonce = reopen().challenge()
    with pytest.raises(NotAuthenticated):
        reopen().authenticate(**fields_of(ALICE.prove(nonce, HOST), nonce))


def test_a_token_of_another_relay_is_invalid(
    authenticator: Authenticator, tmp_path: Path, clock: ManualClock
) -> None:
    other = Authenticator.open(tmp_path / "other", lambda: clock() // 1000)
    token = log_in(other, ALICE).token
    other.close()
    assert authenticator.subject_of_token(token) is None


def test_the_card_holds_the_keys_of_the_agent(authenticator: Authenticator) -> None:
    log_in(authenticator, ALICE)
    assert authenticator.card("agent.alice") == ALICE.card


def test_an_unknown_subject_has_no_card(authenticator: Authenticator) -> None:
    assert authenticator.card("agent.nobody") is None


def test_the_card_of_an_agent_without_a_sealing_key_has_none(authenticator: Authenticator) -> None:
    log_in(authenticator, ALICE, sealing_key=None, sealing_signature=None)
    card = authenticator.card("agent.alice")
    assert card is not None
    assert (card.public_key, card.sealing_key) == (ALICE.public_key, None)


def test_a_sealing_key_signed_for_another_subject_is_rejected(authenticator: Authenticator) -> None:
    text = sealing_key_text(subject="agent.bob", sealing_key=MALLORY.sealing_key)
    stolen = {"sealing_key": MALLORY.sealing_key, "sealing_signature": ALICE.sign(text)}
    with pytest.raises(InvalidMessage, match="does not match"):
        log_in(authenticator, ALICE, **stolen)


def test_a_proof_may_name_any_of_the_given_origins(authenticator: Authenticator) -> None:
    for port in ("80", "443"):
        nonce = authenticator.challenge()
        proof = fields_of(ALICE.prove(nonce, f"Relay.Example:{port}"), nonce)
        both = {"origins": ("relay.example:80", "relay.example:443")}
        assert authenticator.authenticate(**proof | both).subject == "agent.alice"


def test_a_closed_authenticator_binds_no_new_subject(authenticator: Authenticator) -> None:
    authenticator.close()
    authenticator.close()
    with pytest.raises(errors.IdentitiesNotSaved):
        log_in(authenticator, ALICE)


def test_all_files_are_accessible_to_the_owner_only(
    authenticator: Authenticator, tmp_path: Path
) -> None:
    log_in(authenticator, ALICE)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()}
    assert modes == dict.fromkeys(("identities.jsonl", "operator-token", "token-secret"), 0o600)


def test_the_operator_authenticates_with_the_token_in_the_file(
    authenticator: Authenticator, tmp_path: Path
) -> None:
    token = (tmp_path / "data" / "operator-token").read_text().strip()
    assert authenticator.is_operator(token)
    assert not authenticator.is_operator(flipped(token))
    assert not authenticator.is_operator(log_in(authenticator, ALICE).token)
    assert authenticator.subject_of_token(token) is None
