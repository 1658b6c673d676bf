"""The lines of messages between partitions, as `events`. Needs no Spark."""

import msgspec

from waypost.pipeline.journal.columns import record_batch
from waypost.policy.budgets import Budget
from waypost.policy.reasons import Reason
from waypost.wire.events import Accepted, Decided, Forwarded, encode_event
from waypost.wire.results import Rejection

ARRIVAL = Accepted(
    seq=1, at_us=1, id="m", sender="agent.a", subject="agent.b", budget=Budget(ttl=9)
)


def test_lines_of_forwarded_messages_are_rows_like_others() -> None:
    full = Rejection("ab12", Reason.BACKPRESSURE, "full")
    outbox = "_partition.2"
    forwarded = Forwarded.of(msgspec.structs.replace(ARRIVAL, endpoint=outbox), 2)
    decided = Decided(seq=2, at_us=2, id="m", endpoint=outbox, sender="agent.a", rejected=(full,))
    arrived = msgspec.structs.replace(ARRIVAL, seq=3, endpoint="agent.b", origin=1, origin_seq=1)
    lines = b"".join(encode_event(one) + b"\n" for one in (forwarded, decided, arrived))
    rows = record_batch(lines, "relay", 1, None)
    assert rows.column("kind").to_pylist() == ["forwarded", "decided", "accepted"]
    assert rows.column("endpoint").to_pylist() == [outbox, outbox, "agent.b"]
    assert rows.column("ttl_ms").to_pylist() == [9, None, 9]
