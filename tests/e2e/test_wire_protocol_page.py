"""Compare the page on the wire protocol with the code: fields, defaults, bounds, bytes."""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.e2e.test_readme import BLOCK, read
from waypost.client.identity import Identity
from waypost.client.sealing import unseal
from waypost.policy import bounds
from waypost.policy.budgets import Budget
from waypost.server import websocket
from waypost.server.identity.tokens import TOKEN_ALIVE_MS
from waypost.wire import frames
from waypost.wire.codecs import CODECS
from waypost.wire.envelopes import Envelope
from waypost.wire.handshake import from_text, proof_text, sealing_key_text, to_text
from waypost.wire.payloads import Signal, SignalType
from waypost.wire.results import Rejection
from waypost.wire.sealing import Card, Sealed, sealed_of

PAGE = "docs/wire-protocol.md"
CODEC = CODECS[frames.JSON_PROTOCOL]
AGENT, RELAY = "From the agent", "From the relay"
VALUES = {
    "The envelope": Envelope,
    "The budget": Budget,
    "The parent": frames.Parent,
    "A rejection": Rejection,
    "The content of a signal": Signal,
}
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \|", re.MULTILINE)


def part(heading: str, text: str) -> str:
    """Return the section of a heading, up to the next of the same or a higher level."""
    level = heading.split(" ", 1)[0]
    body = text.split(f"{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", body, maxsplit=1, flags=re.MULTILINE)[0]


def page_blocks(text: str, language: str) -> list[str]:
    return [body.rstrip("\n") for found, body in BLOCK.findall(text) if found == language]


def documented() -> Iterator[Any]:
    """Yield every struct with its section of the page."""
    page = read(PAGE)
    for side, operations in ((AGENT, frames.FromAgent), (RELAY, frames.FromRelay)):
        section = part(f"## {side}", page)
        for kind in get_args(operations):
            tag = str(kind.__struct_config__.tag)
            yield pytest.param(kind, part(f"### `{tag}`", section), id=f"{side}: {tag}")
    for heading, kind in VALUES.items():
        yield pytest.param(kind, part(f"### {heading}", page), id=heading)


@pytest.mark.parametrize(("kind", "section"), list(documented()))
def test_a_table_has_every_field_with_its_default(kind: type[msgspec.Struct], section: str) -> None:
    documented = {name: default.strip("`") for name, _, default in ROW.findall(section)}
    assert documented == {
        field.encode_name: _default(field) for field in msgspec.structs.fields(kind)
    }


@pytest.mark.parametrize(("kind", "section"), list(documented()))
def test_a_table_lists_every_enforced_bound(kind: type[msgspec.Struct], section: str) -> None:
    documented = {name: type_ for name, type_, _ in ROW.findall(section)}
    schema = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    is_strict = issubclass(kind, frames.AgentOperation)
    absent = [
        f"{name}: {bound}"
        for name, field in schema.items()
        for bound in _bounds(field)
        if is_strict and str(bound) not in re.findall(r"\d+", documented[name])
    ]
    assert absent == []


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.UNSET:
        return "absent"
    if field.default is not msgspec.NODEFAULT:
        return json.dumps(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return json.dumps(field.default_factory())
    return "required"


def _bounds(schema: dict[str, Any]) -> Iterator[int]:
    for name in ("minimum", "maximum", "maxItems"):
        if name in schema:
            yield schema[name]
    for option in schema.get("anyOf", ()):
        yield from _bounds(option)


@pytest.mark.parametrize("side", [AGENT, RELAY])
def test_frames_on_the_page_are_frames_and_show_every_operation(side: str) -> None:
    section = part(f"## {side}", read(PAGE))
    decode = CODEC.from_agent if side == AGENT else CODEC.from_relay
    operations = frames.FromAgent if side == AGENT else frames.FromRelay
    shown = set()
    for block in page_blocks(section, "json"):
        for line in block.splitlines():
            found = decode(line)
            shown |= {type(one) for one in found}
            again = CODEC.encode(found if line.startswith("[") else found[0])
            assert json.loads(again) == json.loads(line)
    assert shown == set(get_args(operations))


def test_the_worked_proof_follows_from_its_keys() -> None:
    section = part("### Worked example: a proof", read(PAGE))
    text, signature = page_blocks(section, "text")
    me = _identity("agent.web", 1, 2)
    cells = dict(re.findall(r"\| `(\w+)` \| `(.+)` \|", section))
    assert cells == {"public_key": me.public_key, "nonce": to_text(bytes([5]) * 32)}
    assert text.encode() == proof_text(
        origin="127.0.0.1:7171",
        nonce=cells["nonce"],
        subject="agent.web",
        public_key=me.public_key,
    )
    assert me.sign(text.encode()) == signature
    assert me.prove(cells["nonce"], "127.0.0.1:7171").signature == signature


def test_the_worked_sealing_key_follows_from_its_keys() -> None:
    text, signature = page_blocks(part("### A key to encrypt to", read(PAGE)), "text")
    me = _identity("agent.web", 1, 2)
    assert text.encode() == sealing_key_text(subject="agent.web", sealing_key=me.sealing_key)
    assert me.card.sealing_signature == signature


def test_the_worked_seal_follows_from_the_recipe_on_the_page() -> None:
    """Follow the recipe instead of calling the client, as another implementation would."""
    section = part("## Sealed payloads", read(PAGE))
    [sealed] = page_blocks(section, "json")
    [context] = page_blocks(section, "text")
    me, you = _identity("agent.web", 1, 2), _identity("agent.billing", 3, 4)
    once = X25519PrivateKey.from_private_bytes(bytes([6]) * 32)
    info = context.encode()
    shared = once.exchange(X25519PublicKey.from_public_bytes(from_text(you.sealing_key)))
    derived = HKDF(algorithm=SHA256(), length=44, salt=None, info=info).derive(shared)
    cipher = ChaCha20Poly1305(derived[:32])
    content = to_text(cipher.encrypt(derived[32:], b'{"refund":12}', info))
    documented = dict(re.findall(r"\| ([\w ]+) \| `([0-9a-f]+)` \|", section))
    assert documented == {
        "shared secret": shared.hex(),
        "key": derived[:32].hex(),
        "nonce": derived[32:].hex(),
    }
    assert json.loads(sealed) == {
        "waypost": "sealed-2",
        "by": me.public_key,
        "ephemeral": to_text(once.public_key().public_bytes_raw()),
        "sealed_at": 1767225600000,
        "reply_to": "agent.web.refunds",
        "parent": "order-16",
        "content": content,
        "signature": me.sign(info + b"\n" + content.encode()),
    }


def test_the_client_opens_the_worked_seal() -> None:
    [sealed] = page_blocks(part("## Sealed payloads", read(PAGE)), "json")
    payload = json.loads(sealed)
    sealed_of(payload)
    you = _identity("agent.billing", 3, 4)
    opened = unseal(payload, as_=you, sender="agent.web", message_id="refund-17")
    assert opened == {"refund": 12}


def test_every_field_of_a_sealed_payload_and_of_a_card_is_named() -> None:
    page = read(PAGE)
    names = {*Sealed.__struct_fields__, *Card.__struct_fields__}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_the_page_lists_every_close_code() -> None:
    documented = set(map(int, re.findall(r"^\| (\d{4}) \|", read(PAGE), re.MULTILINE)))
    used = {value for name, value in vars(frames).items() if name.startswith("CLOSE_")}
    used |= {
        websocket.CLOSE_POLICY_VIOLATION,
        websocket.CLOSE_INTERNAL_ERROR,
        websocket.CLOSE_TRY_LATER,
    }
    assert documented == used | {1009}  # by the library, far beyond what a frame may be


def test_figures_in_the_prose_equal_the_code() -> None:
    page = re.sub(r"\s+", " ", read(PAGE))
    wanted = [
        f"a list of up to {bounds.frame_max_operations} |",
        f"within {websocket.AUTH_TIMEOUT_S:g} s and within {bounds.frame_overhead_max_bytes:,}",
        f"{TOKEN_ALIVE_MS // 60_000} minutes from now",
        f"{bounds.payload_nesting_max_levels} levels deep",
        f"{bounds.unconfirmed_max_bytes >> 20} MiB",
        f"at most {bounds.lease_max_messages:,} messages",
        f"{bounds.outbox_max_operations:,} operations waiting",
        f"beyond {bounds.unanswered_max_operations:,} the relay stops reading",
        f"up to {bounds.rejected_pause_max_ms // 1000} s a frame",
        f"up to {bounds.message_id_length_max_chars} letters",
        f"at most {bounds.ancestor_chain_max} subjects",
        f"at most {bounds.number_max}",
    ]
    assert [text for text in wanted if text not in page] == []
    assert websocket.BROKEN_FRAMES_MAX == 20
    assert "Twenty such frames" in page
    assert [kind for kind in SignalType if f"`{kind}`" not in page] == []


def _identity(subject: str, signing: int, sealing: int) -> Identity:
    return Identity(
        subject,
        Ed25519PrivateKey.from_private_bytes(bytes([signing]) * 32),
        X25519PrivateKey.from_private_bytes(bytes([sealing]) * 32),
    )
