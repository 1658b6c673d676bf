"""Every hard bound of the system, with its unit in its name.

Settings choose values within these bounds, and nothing in the relay grows past them. The relations
between bounds are asserted when this module is imported.
"""

from typing import Final

subject_tokens_max: Final = 16
subject_length_max_chars: Final = 255
message_id_length_max_chars: Final = 64

payload_max_bytes: Final = 16 * 1024 * 1024
"""No setting may allow a larger payload."""

payload_inline_max_bytes: Final = 4096
"""Larger payloads are stored in the segment's body file."""

payload_nesting_max_levels: Final = 64

batch_max_bytes: Final = 4 * 1024 * 1024
"""A batch is closed at this size, so that one publisher cannot delay all others for long."""

batch_max_events: Final = 4096

ballast_bytes: Final = 8 * 1024 * 1024
"""Reserved on disk, and released when the disk is full so that decisions can still be written."""

publish_many_max_messages: Final = 10_000
lease_max_messages: Final = 1000
handler_claim_max_messages: Final = 16
access_rules_max: Final = 10_000
endpoints_max: Final = 1_000_000
subscriptions_max: Final = 1_000_000
signal_listeners_max: Final = 10_000
ancestor_chain_max: Final = 256

number_max: Final = 1 << 53
"""The largest number in a setting or a budget: every JSON parser reads it exactly, and as a time
it still fits into 64 bits of microseconds."""

wait_max_s: Final = 366 * 24 * 3600
"""The longest delay, wait or timeout that a caller may request."""

identities_max: Final = 100_000
"""Subjects bound to a key; above this, new ones are rejected."""

challenges_max: Final = 65_536
"""Unsigned challenges; above this, the oldest is dropped."""

mailbox_dead_letters_max: Final = 10_000
"""Above this, the oldest is purged."""

journaled_rejections_per_sender_minute_max: Final = 1000
"""Above this, one event with a count represents the rest: a flood cannot fill the disk."""

frame_overhead_max_bytes: Final = 64 * 1024
"""A WebSocket frame may be this much longer than the largest payload that the settings allow;
before authentication, it may only be this long."""

frame_max_operations: Final = 256
outbox_max_operations: Final = 8192
"""A slow consumer with this many unread operations is disconnected."""

unanswered_max_operations: Final = 1024
"""An agent with this many unfinished operations is not read from until some are done."""

unconfirmed_max_bytes: Final = 4 * 1024 * 1024
"""Bytes of unconfirmed messages that an agent may have in flight, or else one message."""

connections_max: Final = 10_000

duplicates_in_memory_max: Final = 50_000
last_seen_in_memory_max_pairs: Final = 100_000
payloads_in_memory_max_bytes: Final = 32 * 1024 * 1024
waits_in_memory_max: Final = 4096
"""Waiting times of the newest acknowledged messages, for metrics."""

breaker_moves_in_memory_max: Final = 256

viewer_connections_max: Final = 64
"""Concurrent live views of one served relay."""

assert payload_inline_max_bytes < batch_max_bytes < ballast_bytes
assert number_max * 1000 < 1 << 63
assert handler_claim_max_messages <= lease_max_messages <= publish_many_max_messages
