"""Every hard bound of the system, with its unit in its name.

Settings choose values within these bounds; nothing in the relay may grow past them. The
relations between bounds are checked when this module is imported, so that a change which
breaks one cannot be shipped.
"""

from typing import Final

subject_tokens_max: Final = 16
subject_length_max_chars: Final = 255
message_id_length_max_chars: Final = 64

payload_max_bytes: Final = 16 * 1024 * 1024
"""No setting may allow a larger payload than this."""

payload_inline_max_bytes: Final = 4096
"""Larger payloads lie in the body file beside the segment."""

payload_nesting_max_levels: Final = 64

batch_max_bytes: Final = 4 * 1024 * 1024
"""A commit closes when it holds this much, so one writer cannot delay all others for long."""

batch_max_events: Final = 4096

ballast_bytes: Final = 8 * 1024 * 1024
"""Kept aside on disk; given back when the disk is full, so that what is decided can be written."""

publish_many_max_messages: Final = 10_000
lease_max_messages: Final = 1000
handler_claim_max_messages: Final = 16
access_rules_max: Final = 10_000
endpoints_max: Final = 1_000_000
subscriptions_max: Final = 1_000_000
signal_listeners_max: Final = 10_000
ancestor_chain_max: Final = 256

number_max: Final = 1 << 53
"""No number in a setting or a budget is larger: every reader of JSON takes it exactly, and a time
that far ahead still fits into 64 bits of microseconds."""

wait_max_s: Final = 366 * 24 * 3600
"""No delay, wait or timeout that a caller asks for is longer."""

identities_max: Final = 100_000
"""Subjects bound to a key; past this, no new one is."""

challenges_max: Final = 65_536
"""Challenges waiting to be signed; past this, the oldest goes."""

mailbox_dead_letters_max: Final = 10_000
"""Past this, the oldest goes."""

journaled_rejections_per_sender_minute_max: Final = 1000
"""Past this, one counted event stands for the rest: a flood cannot fill the disk."""

frame_overhead_max_bytes: Final = 64 * 1024
"""A WebSocket frame may be this much longer than the largest payload that the settings allow;
before an agent has said who it is, it may only be this long."""

frame_max_operations: Final = 256
outbox_max_operations: Final = 8192
"""An agent that has this much to read, and does not, loses its connection."""

unanswered_max_operations: Final = 1024
"""An agent with this many operations under way is not read from until some are done."""

unconfirmed_max_bytes: Final = 4 * 1024 * 1024
"""How many bytes of messages may be ahead of an agent's confirmations, or else one message."""

connections_max: Final = 10_000

duplicates_in_memory_max: Final = 50_000
last_seen_in_memory_max_pairs: Final = 100_000
bodies_in_memory_max_bytes: Final = 32 * 1024 * 1024
waits_in_memory_max: Final = 4096
"""How long the newest acknowledged messages took, for whoever measures."""

breaker_moves_in_memory_max: Final = 256

viewer_connections_max: Final = 64
"""Live views of one served relay at the same time."""

assert payload_inline_max_bytes < batch_max_bytes < ballast_bytes
assert number_max * 1000 < 1 << 63
assert handler_claim_max_messages <= lease_max_messages <= publish_many_max_messages
