"""Message identifiers: they sort by creation time, whatever the clock does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import InvalidMessage
from waypost.wire.identifiers import UlidFactory, ulid_time_ms, validate_message_id

MS = st.integers(0, (1 << 48) - 1)


def zeros(count: int) -> bytes:
    return bytes(count)


def ones(count: int) -> bytes:
    return b"\xff" * count


@given(MS)
def test_an_identifier_holds_its_creation_time(now_ms: int) -> None:
    identifier = UlidFactory(zeros).make(now_ms)
    assert len(identifier) == 26
    assert ulid_time_ms(identifier) == now_ms


@given(st.lists(MS, min_size=2, max_size=50))
def test_identifiers_sort_by_creation_whatever_the_clock_does(
    times: list[int],
) -> None:
    factory = UlidFactory(zeros)
    made = [factory.make(now_ms) for now_ms in times]
    assert made == sorted(set(made))


@pytest.mark.parametrize("entropy", [zeros, ones])
def test_thousands_within_one_millisecond_sort_and_never_overflow(entropy) -> None:
    factory = UlidFactory(entropy)
    made = [factory.make(1_700_000_000_000) for _ in range(5_000)]
    assert made == sorted(set(made))
    assert {len(identifier) for identifier in made} == {26}
    assert {ulid_time_ms(identifier) for identifier in made} == {1_700_000_000_000}


def test_a_clock_that_goes_back_keeps_the_later_time() -> None:
    factory = UlidFactory(zeros)
    later = factory.make(2_000)
    again = factory.make(1_000)
    assert later < again
    assert ulid_time_ms(again) == 2_000


def test_two_factories_never_generate_the_same_identifier() -> None:
    entropy = iter(range(100))
    factories = [UlidFactory(lambda count: bytes([next(entropy)]) * count) for _ in range(2)]
    assert factories[0].make(1_000) != factories[1].make(1_000)


def test_the_alphabet_omits_ambiguous_characters() -> None:
    factory = UlidFactory(ones)
    characters = set().union(*(factory.make(now_ms) for now_ms in range(0, 1 << 40, 1 << 30)))
    assert not characters & set("ILOUilou")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "order-1",
        "01HF7YAT0082JBA4FKCRSE3BW",  # one short
        "01HF7YAT0082JBA4FKCRSE3BW00",  # one long
        "81HF7YAT0082JBA4FKCRSE3BW0",  # beyond 48 bits of time
        "01HF7YAT0082JBA4FKCRSE3BWI",
        "01hf7yat0082jba4fkcrse3bw0",
        "01HF7YAT0082JBA4FKCRSE3BW0\n",
    ],
)
def test_an_identifier_that_is_not_a_ulid_has_no_time(text: str) -> None:
    assert ulid_time_ms(text) is None


@pytest.mark.parametrize("given_id", ["a", "A-1_b", "x" * 64, "01HF7YAT0082JBA4FKCRSE3BW0"])
def test_a_short_plain_token_may_be_a_message_id(given_id: str) -> None:
    assert validate_message_id(given_id) == given_id


@pytest.mark.parametrize(
    "given_id", ["", "x" * 65, ".", "..", "a/b", "a b", "a\n", "ü", "a.b", "a\0", None, 7, b"a"]
)
def test_an_unsafe_file_name_is_not_a_message_id(given_id: object) -> None:
    with pytest.raises(InvalidMessage, match="letters, digits"):
        validate_message_id(given_id)
