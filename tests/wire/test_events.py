"""The journal's events: one line each, and the same after a round trip."""

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import AccessRule, Budget, BudgetCut, Reason
from waypost.policy.breakers import CircuitState
from waypost.wire import events
from waypost.wire.payloads import encode_payload
from waypost.wire.results import Rejection

KINDS = {
    "seen",
    "accepted",
    "rejected",
    "leased",
    "acked",
    "returned",
    "failed",
    "expired",
    "evicted",
    "redriven",
    "queued",
    "cancelled",
    "breaker",
    "endpoint",
    "session",
    "rules",
    "settings",
    "owner",
    "checkpoint",
    "forwarded",
    "decided",
}

WHOLE = st.integers(0, (1 << 62) - 1)
TEXT = st.text(max_size=20)
BUDGETS = st.builds(
    Budget,
    hop_count=st.integers(0, 99),
    ancestor_chain=st.lists(TEXT, max_size=3).map(tuple),
    ttl=WHOLE,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RULES = st.builds(AccessRule, TEXT, TEXT, st.sampled_from(["allow", "deny"]), st.integers(-9, 9))
FIELDS = {
    int: WHOLE,
    str: TEXT,
    bool: st.booleans(),
    Budget: BUDGETS,
    BudgetCut | msgspec.UnsetType: st.just(msgspec.UNSET) | st.builds(BudgetCut, ttl=WHOLE),
    Reason: st.sampled_from(Reason),
    CircuitState: st.sampled_from(CircuitState),
    str | None: st.none() | TEXT,
    int | None: st.none() | WHOLE,
    tuple[Rejection, ...]: st.builds(Rejection, TEXT, st.sampled_from(Reason), TEXT).map(
        lambda one: (one,)
    ),
    tuple[str, ...]: st.lists(TEXT, max_size=3).map(tuple),
    events.BodyRef | None: st.none() | st.builds(events.BodyRef, WHOLE, WHOLE, WHOLE),
    msgspec.Raw | msgspec.UnsetType: JSON.map(encode_payload).map(msgspec.Raw),
    list[AccessRule]: st.lists(RULES, max_size=3),
    dict[str, object]: st.dictionaries(TEXT, JSON, max_size=3),
}


def event_types() -> list[type[events.Event]]:
    return list(get_args(events.AnyEvent))


def made(kind: type[events.Event]) -> st.SearchStrategy[events.Event]:
    known = {str(hint): strategy for hint, strategy in FIELDS.items()}
    known[str(dict[str, "object"]).replace("'object'", "typing.Any")] = FIELDS[dict[str, object]]
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: known[str(field.type)] for field in fields})


def same(one: events.Event, other: events.Event) -> bool:
    """Return whether two events are equal, with payloads compared as decoded values."""
    pairs = [(getattr(one, name), getattr(other, name)) for name in type(one).__struct_fields__]
    plain = [
        tuple(bytes(value) if isinstance(value, msgspec.Raw) else value for value in pair)
        for pair in pairs
    ]
    return type(one) is type(other) and all(left == right for left, right in plain)


def test_the_kinds_of_events_are_the_documented_ones() -> None:
    assert {str(kind.__struct_config__.tag) for kind in event_types()} == KINDS


@pytest.mark.parametrize("kind", event_types(), ids=lambda kind: kind.__struct_config__.tag)
@given(data=st.data())
def test_an_event_is_the_same_after_a_round_trip(
    kind: type[events.Event], data: st.DataObject
) -> None:
    event = data.draw(made(kind))
    encoded = events.encode_event(event)
    assert same(events.decode_event(encoded), event)
    assert b"\n" not in encoded
    assert json.loads(encoded)["kind"] == kind.__struct_config__.tag


def test_a_field_with_its_default_value_is_omitted() -> None:
    line = json.loads(events.encode_event(events.Acked(at_us=1, id="a", endpoint="agent.a")))
    assert line == {"kind": "acked", "at_us": 1, "id": "a", "endpoint": "agent.a"}


@pytest.mark.parametrize(
    "payload",
    [
        "line\nbreak",
        "carriage\rreturn",
        "separators \u2028 and \u2029 and \x85",
        'quotes " and \\ and \x00 and \x1f',
        "emoji 🜁 and ü",
        msgspec.Raw(b'{\n  "a": [1,\r\n 2]\t}'),
        {"within": msgspec.Raw(b'[1,\n2,\r\n{"deep":\n3}]')},
        {"within": msgspec.Raw(b"[1,\r2]")},
        ["\n", {"\n": "\n"}],
    ],
)
def test_an_event_is_one_line_whatever_its_payload(payload: object) -> None:
    content = encode_payload(payload)
    event = events.Accepted(
        at_us=1, id="a", sender="b", subject="c", budget=Budget(ttl=1), payload=msgspec.Raw(content)
    )
    line = events.encode_event(event)
    assert len(line.splitlines()) == 1
    again = events.decode_event(line)
    assert isinstance(again, events.Accepted)
    assert isinstance(again.payload, msgspec.Raw)
    assert msgspec.json.decode(again.payload) == msgspec.json.decode(content)


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"unheard_of","at_us":1}',
        b'{"at_us":1}',
        b'{"kind":"acked","at_us":"one","id":"a","endpoint":"b"}',
        b'{"kind":"acked","at_us":1}',
    ],
)
def test_an_invalid_event_is_rejected(line: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        events.decode_event(line)


def test_a_field_of_a_newer_version_is_ignored() -> None:
    line = b'{"kind":"acked","at_us":1,"id":"a","endpoint":"b","colour":"red"}'
    assert isinstance(events.decode_event(line), events.Acked)


@given(WHOLE, WHOLE, WHOLE, WHOLE, WHOLE)
def test_a_commit_is_the_same_after_a_round_trip(
    seq: int, at_us: int, count: int, size: int, crc: int
) -> None:
    commit = events.Commit(seq=seq, at_us=at_us, count=count, bytes=size, crc=crc)
    encoded = events.encode_event(commit)
    assert encoded.startswith(events.COMMIT_PREFIX)
    assert events.decode_commit(encoded) == commit


def test_a_commit_line_that_is_not_text_is_no_commit_line() -> None:
    line = events.encode_event(
        events.Commit(seq=1, at_us=1, count=1, bytes=1, crc=1, prev="0" * 64)
    )
    with pytest.raises(msgspec.MsgspecError):
        events.decode_commit(line.replace(b"0000", b"00\xff0"))


def test_no_event_looks_like_a_commit() -> None:
    assert not any(
        events.COMMIT_PREFIX.decode().endswith(f'"{kind.__struct_config__.tag}"')
        for kind in event_types()
    )
