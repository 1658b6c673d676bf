"""One number for key and seq: the order, the way back, and whose key it is."""

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from waypost.pipeline.replay.places import (
    KEYS_MAX,
    SEQ_BITS,
    SEQ_MASK,
    Relays,
    numbers_of,
    runs,
    seqs_of,
)

KEYS = st.tuples(st.integers(0, KEYS_MAX - 1), st.integers(0, SEQ_MASK))


def placed(rows: list[tuple[int, int]]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array([(number << SEQ_BITS) | seq for number, seq in rows], dtype=np.int64)


@given(st.lists(KEYS, min_size=1))
def test_places_lie_in_the_order_of_keys_and_seqs(rows: list[tuple[int, int]]) -> None:
    places = np.sort(placed(rows))
    pairs = zip(numbers_of(places).tolist(), seqs_of(places).tolist(), strict=True)
    assert list(pairs) == sorted(rows)


@given(st.lists(st.integers(0, 5)).map(sorted))
def test_a_run_is_what_has_one_key(numbers: list[int]) -> None:
    lengths = [len(list(of_key)) for _, of_key in groupby(numbers)]
    bounds = runs(np.array(numbers, dtype=np.int64))
    assert np.diff(bounds).tolist() == lengths
    assert bounds[0] == 0
    assert bounds[-1] == len(numbers)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_a_key_belongs_to_the_relay_whose_numbers_it_is_among(counts: list[int]) -> None:
    owners = [f"relay-{at}" for at, count in enumerate(counts) for _ in range(count)]
    firsts = [(owners.index(name), name) for name in dict.fromkeys(owners)]
    relays = Relays(firsts)
    assert [relays.of(number) for number in range(len(owners))] == owners
