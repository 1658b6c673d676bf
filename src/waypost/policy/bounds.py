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

mailbox_file_max_bytes: Final = payload_max_bytes + 1024 * 1024
"""A larger file in a mailbox directory is not read: no message needs one."""

payload_nesting_max_levels: Final = 64

batch_max_bytes: Final = 4 * 1024 * 1024
"""A batch is closed at this size, so that one publisher cannot delay all others for long."""

batch_max_events: Final = 4096

ballast_bytes: Final = 8 * 1024 * 1024
"""Reserved on disk, and released when the disk is full so that decisions can still be written."""

closed_ballast_bytes: Final = 1024 * 1024
"""Reserved while the relay is closed, so that it opens on a disk that got full meanwhile."""

history_max_events: Final = 10_000
"""Events of one message that its history shows; the first ones."""

thread_max_messages: Final = 500
"""Messages of one thread that are shown together; the first ones."""

publish_many_max_messages: Final = 10_000
turn_max_deliveries: Final = 1024
"""Deliveries of one `publish_many` before other tasks get their turn."""

turn_max_messages: Final = 128
"""Messages of one batch that are checked and encoded, or delivered to the workers of one pool,
before other tasks get their turn."""

turn_max_mailboxes: Final = 50
"""Mailbox directories that are searched before other tasks get their turn."""

names_visited_per_endpoint_max: Final = 100
"""The search for the endpoints of a pattern visits at most this many names for each endpoint that
`max_fanout` allows."""

lease_max_messages: Final = 1000
lease_extension_max_s: Final = 24 * 3600
"""The longest extension of a lease at once; it can be extended again."""
scheduled_max_messages: Final = 100
"""Scheduled messages that a connected agent lists at once."""

peek_max_bytes: Final = 16 * 1024 * 1024
"""Messages of one peek, or else one message."""

handler_claim_max_messages: Final = 16
access_rules_max: Final = 10_000
config_file_max_bytes: Final = 16 * 1024 * 1024
"""A larger `config.json` or `access-rules.json` is invalid, and is not read."""

endpoints_max: Final = 1_000_000
subscriptions_max: Final = 1_000_000
subscriptions_file_max_bytes: Final = 512 * subscriptions_max
"""A larger `subscriptions.json` is ignored: no list of patterns needs one."""

signal_listeners_max: Final = 10_000
ancestor_chain_max: Final = 256

error_max_chars: Final = 500
"""The error text of a failed delivery; a longer one is cut."""

number_max: Final = 1 << 53
"""The largest number in a setting or a budget: every JSON parser reads it exactly, and as a time
it still fits into 64 bits of microseconds."""

wait_max_s: Final = 366 * 24 * 3600
"""The longest delay, wait or timeout that a caller may request."""

identities_max: Final = 100_000
"""Subjects bound to a key; above this, new ones are rejected."""

revoked_max_keys: Final = 8
"""Earlier keys of a name that cannot bind it again; above this, the oldest is forgotten."""

name_changes_per_minute_max: Final = 10
"""Changes of one name by its own agent: another key or card."""

all_name_changes_per_minute_max: Final = 600

cards_max: Final = 10_000
"""Names with a card; above this, new ones are rejected."""

card_description_max_bytes: Final = 1000
card_version_max_chars: Final = 64
card_skill_max_chars: Final = 32
card_skills_max: Final = 20

directory_page_max_names: Final = 1000
"""Names that one page of the directory looks at."""

notes_in_memory_max: Final = 10_000
"""Names without an agent for which the similar name is known; above this, it is searched again."""

similar_names_per_second_max: Final = 20
"""Searches for the name that a sender probably meant."""

departures_in_memory_max: Final = 10_000
"""Disconnected agents whose last connection is known; above this, the oldest is forgotten."""

crowded_identities_max: Final = 90_000
"""Above this many bound subjects, unused ones expire after an hour."""

reserved_patterns_max: Final = 1000
"""Patterns in `names.reserved`."""

challenges_max: Final = 65_536
"""Unsigned challenges; above this, the oldest is dropped."""

released_before_pause_max_messages: Final = 1024
"""Messages of one mailbox that may be released in a row, without an acknowledgement, before its
deliveries pause."""

released_per_pause_step_max_messages: Final = 256
"""With each so many more, the pause doubles."""

pauses_in_memory_max: Final = 100_000
"""Mailboxes whose releases are counted; above this, the oldest count is dropped."""

mailbox_dead_letters_max: Final = 10_000
"""Above this, some are purged: of strangers first, and of the sender with the most."""

notice_max_messages: Final = 100
"""Evicted messages in one notice to their sender; there are more notices if there are more."""

journaled_rejections_per_sender_minute_max: Final = 1000
"""Above this, one event with a count represents the rest: a flood cannot fill the disk."""

logged_expiries_per_minute_max: Final = 1000
"""Recipients of expired messages with a line of their own in the log; the rest share one."""

frame_overhead_max_bytes: Final = 64 * 1024
"""A WebSocket frame may be this much longer than the largest payload that the settings allow;
before authentication, it may only be this long."""

frame_max_operations: Final = 256
outbox_max_operations: Final = 8192
"""A slow consumer with this many unread operations is disconnected."""

queue_full_max_operations: Final = 1000
"""Full recipients of one message that its sender is notified of; a fan-out has fewer by default."""

live_receipts_max_operations: Final = 1024
"""Confirmations that a connected sender has not acknowledged; beyond, they go to its mailbox."""

unanswered_max_operations: Final = 1024
"""An agent with this many unfinished operations is not read from until some are done."""

awaited_replies_max: Final = 256
"""Messages of one connection whose sender waits for a reply; beyond, the oldest is forgotten."""

unconfirmed_max_bytes: Final = 4 * 1024 * 1024
"""Bytes of unconfirmed messages that an agent may have in flight, or else one message."""

answers_ahead_max_messages: Final = 256
"""Messages in flight at one worker of a pool up to which answers to its own are delivered to it
ahead of others; beyond, to any worker."""

sent_per_worker_in_memory_max: Final = 4096
"""Messages that one worker of a pool has sent, and whose answers and confirmations it gets."""

rejected_pause_max_ms: Final = 1000
"""The longest pause before the next frame or answer of a sender whose messages are rejected."""

waiting_batches_max: Final = 64
"""Batches of senders whose messages are all rejected that wait; over HTTP the next gets a 429."""

rejected_callers_max: Final = 10_000
"""Senders whose last batch was rejected whole that a served relay remembers."""

connections_max: Final = 10_000
"""TCP connections of a served relay, and no more than there are file descriptors for."""

request_head_max_bytes: Final = 64 * 1024
"""The request line and headers of an HTTP request, and the trailers behind its body."""

request_headers_max: Final = 128

arriving_bodies_max_bytes: Final = 64 * 1024 * 1024
"""Request bodies over 64 KiB that are arriving, all together; without a token, half of it."""

small_frames_max: Final = 200
"""Pings, pongs and fragments under 128 bytes of one WebSocket in 10 s."""

message_fragments_max: Final = 8192

readers_in_memory_max: Final = 10_000
"""Agents that read over HTTP whose presence is known; above this, the oldest read is forgotten."""

duplicates_in_memory_max: Final = 50_000
acked_in_memory_max: Final = 60_000
"""Acknowledged messages that follow-ups find without a look into the journal."""

last_seen_in_memory_max_pairs: Final = 100_000
last_seen_max_pairs: Final = 1_000_000
"""Above this, a tenth is forgotten: first those without an answer, and of the sender with the
most."""

outbox_max_messages: Final = 100_000
outbox_max_bytes: Final = 256 * 1024 * 1024
"""Messages that wait for the decision of one other partition; above this, publishes to it are
rejected."""

forward_batch_max_messages: Final = 500
forward_batch_max_bytes: Final = 512 * 1024
"""Messages that are carried to another partition at once, unless one alone is larger."""

forward_wait_max_ms: Final = 10_000
"""How long a publish waits for the decision of another partition."""

forward_retry_min_ms: Final = 50
forward_retry_max_ms: Final = 2_000
"""How long a partition that cannot be reached is left alone, at first and at last."""

payloads_in_memory_max_bytes: Final = 32 * 1024 * 1024
waits_in_memory_max: Final = 4096
"""Waiting times of the newest acknowledged messages, for metrics."""

breaker_moves_in_memory_max: Final = 256

rejected_senders_in_memory_max: Final = 256
"""Senders whose recent rejections are counted one by one, for the operator."""

viewer_connections_max: Final = 64
"""Concurrent live views of one served relay."""

webhooks_max: Final = 10_000
"""Webhooks of one served relay; above this, new ones are rejected."""

webhook_url_max_chars: Final = 2048
webhook_hosts_max: Final = 100
"""Entries of `webhooks.allowedHosts`, and of `webhooks.privateHosts`."""

webhook_connections_max: Final = 256
"""Notices that are posted at once. The entries that allow their hosts have equal shares of it."""

webhook_host_connections_max: Final = 16
"""Notices that are posted at once to the hosts of one entry."""

webhook_head_max_bytes: Final = 16 * 1024
"""The head of a webhook's response; its body is not read."""

webhook_max_messages: Final = 50
"""Messages in one notice."""

webhook_messages_max_bytes: Final = 256 * 1024
"""Payloads in one notice; a message with a larger one is only counted."""

webhook_changes_per_agent_minute_max: Final = 10
"""Times that one agent may set, test or remove its webhook."""

webhook_changes_per_minute_max: Final = 600
"""The same for all agents together."""

partitions_max: Final = 4096
"""Partitions of a cluster."""

replicas_max: Final = 5
"""Copies of a partition's stream; NATS allows no more."""

cluster_name_max_chars: Final = 64

monitoring_max_bytes: Final = 1024 * 1024
"""What is read of a NATS server's answer about its settings."""

assert payload_inline_max_bytes < batch_max_bytes < ballast_bytes
assert closed_ballast_bytes <= ballast_bytes
assert arriving_bodies_max_bytes // 2 > payload_max_bytes + frame_overhead_max_bytes
assert number_max * 1000 < 1 << 63
assert crowded_identities_max < identities_max
assert webhook_connections_max >= 2 * webhook_hosts_max
assert last_seen_in_memory_max_pairs <= last_seen_max_pairs
assert handler_claim_max_messages <= lease_max_messages <= publish_many_max_messages
