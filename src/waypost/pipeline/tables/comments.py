"""What the columns of each table mean: their comments for other engines, and in docs/tables.md.

Columns that are described together are one key. A column that its name explains has no comment.
"""

from collections.abc import Mapping
from typing import Final

COMMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "messages": {
        "seq": "sequence number of the arrival in the relay's journal",
        "id": "id of the message",
        "sender, subject, endpoint": "the publisher, the subject or pattern, and the mailbox",
        "part, parts": "index of this mailbox, and number of mailboxes",
        "reply_to, parent": "the subject for replies; the id of the parent message",
        "thread": (
            "id of the conversation: that of its first message, unless the sender chose another"
        ),
        "answer": "whether it returned to who asked",
        "size": "bytes of the stored envelope",
        "hop_count": "hops before this delivery",
        "tier": "1 unknown, 2 acknowledged, 3 active",
        "depth": "messages in the mailbox on arrival",
        "due_at": "when a scheduled message is, or was, due; null for others",
        "first_leased_at": "time of the first delivery",
        "finished_at": "time of its final state; null while `scheduled`, `pending` or `leased`",
        "state": (
            "`scheduled`, `pending`, `leased`, `acked`, `dead`, `expired`, `purged`, or `cancelled`"
        ),
        "reason": "reason of `dead`, `purged` or `expired`; else null",
        "died_at, died_of": (
            "time and reason of its last dead-lettering, whatever its state now; null if it"
            " never was a dead letter"
        ),
        "attempts, returns, redrives": (
            "number of deliveries (without extensions), returns (nack, lease timeout,"
            " disconnect) and redrives"
        ),
        "wait_ms": "from arrival to the first lease",
        "total_ms": (
            "from arrival to the ack; null unless `acked`. Both times of a scheduled message"
            " begin when it was due"
        ),
    },
    "rejections": {
        "seq": "sequence number in the relay's journal",
        "at": "time of the event; for a counted one, after the last of its rejections",
        "id": (
            "id of the message; empty if it was rejected before it had one, or if the event"
            " counts many"
        ),
        "sender, subject, endpoint": "`endpoint` is empty if the publish was rejected as a whole",
        "reason, detail": "one of the reasons, and its text",
        "count": "number of rejections that the event stands for",
        "tier": "tier of the sender; 1 if it was not determined",
        "retry_after_ms": "time until a retry makes sense, 0 if unknown",
        "kept": "false if a dead letter was not stored because its sender has too many",
    },
    "breakers": {
        "seq, at": "sequence number in the relay's journal, and time",
        "endpoint": "endpoint of the breaker",
        "before, after": "`CLOSED`, `OPEN`, `HALF_OPEN`",
        "occasion": "cause of the change; `reset by hand` also where only failures were forgotten",
        "lasted_ms": "time in the state `after`, until a restart at most; null if it lasts",
    },
    "sessions": {
        "day, relay": "the day of connection",
        "subject": "the agent",
        "connected_at, disconnected_at, lasted_ms": "the last two are null without a recorded end",
    },
    "traffic": {
        "publishes": "publishes, rejected ones included",
        "stored": "messages stored in mailboxes",
        "unclaimed": "publishes without recipient: no endpoint matched",
        "rejected": "rejections",
        "acked, failed": "messages acked and failed in this minute, whenever they arrived",
        "bytes": "bytes stored",
    },
    "pairs": {
        "arrivals, stored, rejected": "the first is the sum of the other two",
        "bytes": "bytes stored",
        "first_at, last_at": "first and last arrival",
        "last_seen_ms": (
            "last arrival that passed the sender's rate limit, in ms since the epoch; tiers are"
            " computed from it; null if there was none"
        ),
        "last_tier": "tier of the last arrival",
    },
    "pressure": {
        "depth_peak": "most messages in the mailbox on any arrival",
        "depth_max": "cap of the mailbox; 0 without a cap",
        "pressure": "largest used share of the cap on any arrival, 0 to 1",
    },
    "senders": {
        "publishes": "rejected ones included",
        "stored, rejected": "arrivals",
        "rate_limited, fanout_exceeded, quota_exceeded, backpressure, circuit_open,"
        " budget_exceeded, access_denied": "rejections by reason",
        "bytes": "bytes stored",
        "recipients": "mailboxes with arrivals from it",
        "answers": "arrivals for this sender that day, from its recipients of that day",
        "busiest_minute": "most publishes in a minute",
        "tier1, tier2, tier3": "arrivals at mailboxes by tier",
    },
    "inboxes": {
        "arrivals, stored, rejected": "the first is the sum of the other two",
        "acked, failed, expired, evicted": "transitions on that day",
        "bytes": "bytes stored",
        "senders": "number of senders",
        "depth_peak, pressure_peak": "as in `pressure`",
        "wait_p50_ms, wait_p95_ms, total_p50_ms, total_p95_ms": "as in `latency`",
    },
    "latency": {
        "messages": "number of arrivals",
        "wait_p50_ms, wait_p95_ms, wait_p99_ms": "from arrival to the first lease",
        "total_p50_ms, total_p95_ms, total_p99_ms": "from arrival to the ack",
    },
    "dead_letters": {
        "reason": "kind of the reason: its text up to the first `: `, without the error",
        "letters": "number of dead letters",
        "senders": "number of their senders",
        "redriven": "dead letters that were redriven at least once",
        "purged, waiting": "dead letters that were purged, and that are still kept",
        "first_at, last_at": "time of the first and the last one",
    },
    "loops": {
        "day, relay, endpoint": "the mailbox where they were stopped",
        "chain": "the loop: from this mailbox to itself",
        "times": "number of stopped messages",
        "senders": "number of agents that sent the last hop",
        "why": (
            'a sentence: "agent.b → agent.c → agent.b came back after 2 hops, stopped 14 times"'
        ),
    },
    "threads": {
        "messages": "arrivals on that day, rejected ones included",
        "answers, rejected": "those that returned to who asked, and those rejected",
        "exhausted": "those rejected because the conversation had no calls left",
        "participants": "its senders and mailboxes, sorted",
        "calls_left": "the fewest calls left that a message had on arrival",
        "hops_max": "the most hops before a delivery",
    },
    "anomalies": {
        "kind": "`flood`, `one_way`, `burst`, `loop`, or `exhausted`",
        "endpoint": "for a `loop` and for `exhausted`, the mailbox where it was stopped; else null",
        "observed, expected": "the conspicuous value, and the usual one",
        "why": "a sentence with the figures",
    },
}
"""Table → columns → comment."""
