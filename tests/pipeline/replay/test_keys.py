"""Sort keys: their order, how they are unpacked, and the relay of a key."""

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from waypost.pipeline.replay.keys import (
    KEYS_MAX,
    SEQ_BITS,
    SEQ_MASK,
    RelayIndex,
    run_bounds,
    unpack,
)

ROWS = st.tuples(st.integers(0, KEYS_MAX - 1), st.integers(0, SEQ_MASK))


def packed(rows: list[tuple[int, int]]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array([(key_id << SEQ_BITS) | seq for key_id, seq in rows], dtype=np.int64)


@given(st.lists(ROWS, min_size=1))
def test_sort_keys_order_rows_by_key_and_then_by_seq(rows: list[tuple[int, int]]) -> None:
    key_ids, seqs = unpack(np.sort(packed(rows)))
    assert list(zip(key_ids.tolist(), seqs.tolist(), strict=True)) == sorted(rows)


@given(st.lists(st.integers(0, 5)).map(sorted))
def test_a_run_holds_the_rows_of_one_key(key_ids: list[int]) -> None:
    lengths = [len(list(of_key)) for _, of_key in groupby(key_ids)]
    bounds = run_bounds(np.array(key_ids, dtype=np.int64))
    assert np.diff(bounds).tolist() == lengths
    assert bounds[0] == 0
    assert bounds[-1] == len(key_ids)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_a_key_belongs_to_the_relay_with_its_range_of_ids(counts: list[int]) -> None:
    owners = [f"relay-{at}" for at, count in enumerate(counts) for _ in range(count)]
    first_ids = [(owners.index(relay), relay) for relay in dict.fromkeys(owners)]
    relays = RelayIndex(first_ids)
    assert [relays.relay_of(key_id) for key_id in range(len(owners))] == owners
