"""Options: invalid values are rejected on construction."""

from typing import Any

import pytest

from waypost.client.options import ClientOptions
from waypost.policy.errors import InvalidSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"receive": "carrier pigeon"},
        {"encoding": "xml"},
        {"connect_timeout_s": 0},
        {"send_timeout_s": -1.0},
        {"close_timeout_s": float("inf")},
        {"ping_interval_s": float("nan")},
        {"handshake_timeout_s": "soon"},
        {"unanswered_max": 0},
        {"unread_max_messages": 0},
        {"unread_max_bytes": 0.5},
        {"remembered_max_ids": -1},
    ],
    ids=str,
)
def test_a_value_out_of_range_is_rejected_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        ClientOptions(**wrong)


def test_the_encoding_decides_the_subprotocol() -> None:
    assert ClientOptions(encoding="json").protocol == "waypost.json"
    assert ClientOptions(encoding="msgpack").protocol == "waypost.msgpack"
