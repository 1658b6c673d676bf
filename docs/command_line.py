"""The hand-written parts of docs/reference/command-line.md: introduction, output, JSON fields.

`docs/generate.py` puts them between the help texts. tests/cli/test_reference.py compares the JSON
fields with the output of each command.
"""

from typing import NamedTuple

INTRO = """\
`waypost` works on the data directory of a relay, or on a served relay. Install it with
`pip install 'waypost[cli]'`, or with `'waypost[server]'` to serve a relay; in a checkout,
`./run waypost …` works without installing. Each command has `-h` and `--help`; `waypost --version`
prints the version.

| common options | |
|---|---|
| `--data-dir DIR` | data directory; default `WAYPOST_DATA_DIR`, else `./waypost-data` |
| `--url URL` | a served relay instead; default `WAYPOST_URL` |
| `--key FILE` | at a served relay, act as the agent with these keys; default `WAYPOST_KEY` |
| `--operator-token-file FILE` | at a served relay, act as its operator; default \
`WAYPOST_OPERATOR_TOKEN_FILE`, or the token itself in `WAYPOST_OPERATOR_TOKEN` |
| `--json` | print only JSON on stdout |

`waypost context add NAME URL` names a relay with the files of its credentials; the one in use
(`waypost context use NAME`) is the relay of every command that can work on a served relay and is
given none, neither by option nor by environment. `waypost --install-completion` lets bash, zsh,
fish or PowerShell complete commands and options with Tab, from the next shell on;
`waypost --show-completion` prints the script instead.

| exit code | meaning |
|--:|---|
| 0 | success |
| 1 | failure, or a problem was found |
| 2 | invalid command or input |
| 3 | `send`, `request`: the message was rejected, or no endpoint matched |
| 4 | the relay stopped because its journal or a cluster's log failed: start it again |

An error is one sentence on stderr. A traceback is a bug.

With `--json` a command prints one JSON object in UTF-8; errors and questions go to stderr. Times
are RFC 3339 in UTC, unless a name ends in `_us` (µs since the epoch) or `_ms` (a duration in ms).
Sizes are bytes. New fields may be added; the documented ones stay.

## On a data directory

These commands take no lock and change nothing, so they work while a relay runs: `inbox` without
`--ack`, `explain`, `thread`, `scheduled list`, `endpoints`, `stats`, `dead-letters list`,
`config check`, `config show`, `rules list`, `names list`, `breakers list`, `top`, `tail`, `verify`
without `--repair`.
`config save`, `rules add` and `rules remove` also work then, and the relay applies the change at
once. The others open the relay themselves, and fail with exit code 1 while another process has it:
`send`, `inbox --ack`, `scheduled cancel`, `dead-letters redrive`, `dead-letters purge`,
`names bind`, `names unbind`, `verify --repair`, `rebuild`. They use the directory's `config.json`
over the defaults; settings that your program passes to `Relay` are unknown to them. Circuit
breakers are in the memory of a running relay:
`breakers list` and `stats` show those that its journal says are not closed, and `breakers reset`
needs its URL.

## On a served relay

```sh
waypost stats --url http://127.0.0.1:7171 --operator-token-file waypost-data/operator-token
waypost send agent.billing "call me" --url http://127.0.0.1:7171 --sender agent.web
```

Commands, output and exit codes are the same. An option takes precedence over the environment; a
directory and a URL given on the same level are an error. `verify` and `rebuild` work on files only,
on the relay's machine. For a relay with its own certificate, set `SSL_CERT_FILE=cert.pem`.

| command | credentials |
|---|---|
| `send` | an agent's keys, or none if the relay accepts anonymous messages; with \
`--sender _operator` the operator's token |
| `ping` | none |
| `listen`, `request`, `mcp`, `hook` | an agent's keys |
| `inbox` | the keys of its agent, or the operator's token; not while the agent is connected |
| `scheduled` | an agent's keys for its own messages, or the operator's token for all |
| `explain`, `thread` | the operator's token for every message and every check; an agent's keys \
for its own messages |
| `webhooks` | the keys of its agent, or the operator's token |
| `endpoints`, `stats`, `top`, `breakers`, `dead-letters`, `config`, `rules`, `names` | the \
operator's token |

An agent's keys are read from the file given with `--key`, or else from where `waypost keys new`
saved them.

The operator's token is sent only with commands that need it, only over TLS or to this machine
(`--allow-plain-http` lifts that), and only to the address of the relay that first accepted it,
which is remembered in `~/.config/waypost/operator-relays.json` (`--new-address` adds another).
"""

OUTPUT = {
    "send": """\
call-17: delivered to agent.billing
""",
    "inbox": """\
call-17  from agent.web  1 s ago
  {"refund":12}
agent.billing: 1 pending message.
""",
    "explain": """\
call-17  2026-11-15 20:07:42 UTC

  +0 ms  check         rate limit passed: 0/100 in the sender's window
         check         backpressure passed: 0/1000 in the mailbox
         check         circuit breaker passed: CLOSED
         check         budget passed: hop 0 of 5, 10 calls left, expires 2026-11-15 21:07:42 UTC
         stored        agent.web -> agent.billing: stored, 265 bytes
+1.92 s  leased        delivered, attempt 1, via lease
+1.93 s  acknowledged  acknowledged via lease

agent.billing: acknowledged.
The whole conversation: waypost thread call-17
""",
    "thread": """\
call-17  2026-11-15 20:07:42 UTC

  +0 ms  call-17                     agent.web to agent.billing       acked, 10 calls left
+1.92 s  01M7GQDS1R2E1QB0KWMQ8VR495  agent.billing answers agent.web  pending, 9 calls left

2 messages.
""",
    "listen": """\
01M7GQDS1R2E1QB0KWMQ8VR495  from agent.web  {"refund":12}
""",
    "endpoints": """\
Endpoint        Pending   Leased   Dead   Oldest    Registered   Mailbox
─────────────────────────────────────────────────────────────────────────────
agent.billing         1        0      0   2 s ago   2 s ago      57e140aa240d
""",
    "stats": """\
/srv/waypost-data
no relay is running; storage maildir, durability fsync

Nothing needs attention.

14 events, the last 1 s ago
1 message: 1 pending, 0 leased, 0 dead

Endpoint        Pending   Leased   Dead   Oldest    Bytes   Full   Top sender
─────────────────────────────────────────────────────────────────────────────────
agent.billing         1        0      0   2 s ago     280     0%   agent.web (1)

Since 2026-11-15 20:07:42 UTC
  events: rules 4, settings 4, stored 3, acknowledged 1, endpoint 1, leased 1
""",
    "verify": """\
/srv/waypost-data
read 1 segment with 14 events, 1 message in mailboxes
every batch from event 1 on names the one before it
Everything is in order.
""",
}
"""Sample output of commands, without `--json`."""


class JsonOutput(NamedTuple):
    """The JSON fields of a command, with text before and after the table."""

    fields: dict[str, str]
    before: str = ""
    after: str = ""


_MESSAGE = "`id`, `subject`, `sender`, `reply_to`, `thread`, `created_at`, `payload`"

JSON = {
    "send": JsonOutput(
        {
            "`subject`": "recipient of the message",
            "`message_id`": "its id; empty if the publish was rejected as a whole",
            "`delivered_to`": "number of mailboxes that store it",
            "`rejected`": "one entry per endpoint that did not: `endpoint` (empty if the whole"
            " publish was rejected), `reason`, `detail`, `advice`",
            "`retry_after_ms`": "time until it can be accepted; 0 if unknown",
            "`confirmed_by`": "with `--wait`: the first recipient to confirm it; empty if none did"
            " in time",
            "`was_stored`": "whether it was stored until then; null without a confirmation",
            "`budget_cut`": "what the relay granted instead of `--expires-in`: `ttl`, the instant"
            " of expiry in ms; null if it was not cut",
            "`never_connected`": "`did_you_mean`, the name that was probably meant or empty, if no"
            " agent has ever connected as the recipient and the directory is open; else null",
        }
    ),
    "inbox": JsonOutput(
        {
            "`subject`": "the endpoint",
            "`messages`": "envelopes: `id`, `subject`, `sender`, `reply_to`, `thread`, `answer`"
            " (if it is one), `budget`, `created_at`, `payload`",
            "`pending`": "pending messages; with `--ack`, those that remain, and null at a served"
            " relay without the operator's token",
            "`leased`": "leased messages; with `--ack`, those leased by others; null likewise",
            "`unreadable`": "problems of messages that cannot be shown",
            "`acknowledged`": "whether these messages leave the mailbox now",
        }
    ),
    "explain": JsonOutput(
        {
            "`message_id`": "the id",
            "`steps`": "in order: `at_us`, `seq` (number of the journal event; 0 if hidden),"
            " `kind` (`check`, or the kind of event), `endpoint`, `text`",
            "`thread`": "the conversation it belongs to",
        },
        after="A publish rejected by the rate limit has no id and no history; it is counted in the"
        " journal and in `stats`.",
    ),
    "thread": JsonOutput(
        {
            "`thread`": "the conversation",
            "`messages`": "in order, one for each mailbox: `id`, `at_us`, `sender`, `endpoint`,"
            " `parent` (if it has one), `answer` (if it is one), `calls_left` (on arrival),"
            " `outcome` (`pending`, `leased`, `acked`, `expired`, `dead`, `purged`, `rejected`, or"
            " `gone`), `reason` (if it has one)",
            "`more`": "whether only the first 500 are shown",
        }
    ),
    "endpoints": JsonOutput(
        {
            "`endpoints`": "in order of registration: `subject`, `hash`, `maildir_path` (null"
            " without mailbox files), `registered_at`, `pending`, `leased`, `dead` and"
            " `oldest_us` (arrival of the oldest unacknowledged message, or null) (null beyond the"
            " 10,000 fullest of a served relay)",
        }
    ),
    "stats": JsonOutput(
        {
            "`url`": "the served relay; empty for a directory",
            "`data_dir`": "the directory; empty for a served relay",
            "`in_use_by`": "pid of the relay running in the directory; empty if there is none",
            "`seq`": "number of the last event",
            "`last_event_at`": "its time; null without one, or if unknown",
            "`storage`, `durability`": "these two settings",
            "`total_messages`": "live and dead messages",
            "`by_status`": "`pending`, `scheduled`, `leased`, `dead`",
            "`endpoints`": "`subject`, `hash`, `pending`, `leased`, `dead`, `bytes`, `pressure` (0"
            " to 1), `top_senders` (sender, messages, bytes), `oldest_us` (arrival of the oldest"
            " unacknowledged message, or null)",
            "`counted_since`": "start of the counts `events` and `rejected`; null without events,"
            " or at a served relay, which counts from its start",
            "`events`": "number of events by kind",
            "`rejected`": "number of rejected publishes by reason",
            "`connected`": "agents connected to a served relay",
            "`stuck`": "those of them that acknowledge nothing",
            "`breakers`": "as `breakers list` prints them",
            "`problems`": "problems with `config.json`, `access-rules.json` or the journal",
            "`findings`": "what to look at, the most urgent first: `kind`, `subject` (empty if it"
            " is the relay), `text`, `advice`, `command` (the words after `waypost`) and `link`"
            " (a view of the dashboard, after its URL)",
            "`rejections`": "senders rejected in the last minutes, most rejections first: `sender`"
            " (empty for those not listed), `total`, `reasons`",
        }
    ),
    "ping": JsonOutput(
        {
            "`url`": "the served relay",
            "`version`": "its version; empty if it is too old to report it",
            "`count`": "requests that were measured, on one connection",
            "`median_ms`, `min_ms`, `max_ms`": "their round trips",
        }
    ),
    "context list": JsonOutput(
        {
            "`current`": "the name of the context in use; empty if there is none",
            "`contexts`": "by name: `url`, `key` and `operator_token_file`, where they are set",
        }
    ),
    "listen": JsonOutput(
        {
            _MESSAGE: "of a message",
            "`parent`": "id of the message it follows from, or null",
            "`was_stored`": "whether it was stored until the agent connected",
            "`attempt`": "number of the delivery; more than 1 if earlier ones failed",
            "`problem`": "why a sealed payload cannot be unsealed; `payload` is null then",
            "`message_id`": "of a confirmation: the message that this agent sent",
            "`recipient`": "of a confirmation: the agent that confirmed it",
        },
        before="One object per line: a message, or a confirmation with `message_id`, `recipient`"
        " and `was_stored`.",
    ),
    "listen --exec": JsonOutput(
        {
            "`id`, `sender`, `attempt`": "of the message",
            "`exit_code`": "of the command; negative if a signal ended it, null if it did not start"
            " or was ended by Waypost",
            "`duration_ms`": "how long it took",
            "`outcome`": "`acknowledged`, `returned` (to be delivered again) or `released` (the"
            " delivery does not count)",
            "`error`": "why it was returned, or why no answer was sent; else empty",
            "`answer`": "id of the answer that `--reply` sent, or null",
        },
        before="One object per line, after each command. What the commands print goes to stderr.",
    ),
    "request": JsonOutput(
        {
            _MESSAGE: "of the reply",
            "`parent`": "id of the request",
            "`was_stored`, `attempt`, `problem`": "as for `listen`",
        },
        before=(
            "The reply; or, if the request was rejected, the fields of `send`. With several"
            " payloads, one object on each line."
        ),
    ),
    "scheduled list": JsonOutput(
        {
            "`messages`": "those due first at the beginning: `id`, `sender`, `subject` (as"
            " published), `endpoint`, `size`, `accepted_at`, `deliver_at`",
            "`more`": "whether there are further ones",
        }
    ),
    "scheduled cancel": JsonOutput(
        {
            "`cancelled`": "ids of the cancelled messages",
            "`not_cancelled`": "ids that are unknown, of another sender, or due already",
        }
    ),
    "dead-letters list": JsonOutput(
        {
            "`dead_letters`": "the oldest failure first: `envelope`, `reason`, `failed_at`,"
            " `endpoint`, `endpoint_hash`",
        },
        after="A served relay returns at most the oldest 1,000; their total is printed on stderr.",
    ),
    "dead-letters list --group": JsonOutput(
        {
            "`groups`": "the largest first: `endpoint`, `reason`, `count`, `first_failed_at`,"
            " `last_failed_at`, `ids`",
        }
    ),
    "dead-letters redrive": JsonOutput(
        {
            "`redriven`": "number of messages that are pending again",
            "`not_redriven`": "ids that are not dead letters, or cannot be read",
        }
    ),
    "dead-letters purge": JsonOutput({"`purged`": "number of deleted dead letters"}),
    "config check": JsonOutput(
        {
            "`file`": "the file that was checked",
            "`exists`": "whether it exists; if not, the defaults apply",
            "`valid`": "whether a relay would accept it",
            "`problem`": "the first invalid value",
            "`notes`": "valid settings that cannot work as intended",
        },
        after="A served relay calls its own file `config.json of URL`. `config save` prints the"
        " same fields. `config show` prints a `config.json`, with or without `--json`.",
    ),
    "rules list": JsonOutput(
        {
            "`rules`": "in the order in which they are applied: `from`, `to`, `action`, `priority`,"
            " and `fromKey` if the rule names a key",
            "`problem`": "why the rules file cannot be used; everything is denied then",
        },
        after="`rules add` and `rules remove` print the same fields, after the change.",
    ),
    "names list": JsonOutput(
        {
            "`names`": "sorted by `subject`: `public_key` and `bound_at` of its owner;"
            " `by_operator`, whether the operator bound it; `unused`, whether it may expire;"
            " `connected`, null on a data directory",
        },
        after="`names bind` and `names unbind` print the fields of one name.",
    ),
    "webhooks set": JsonOutput(
        {
            "`subject`": "the agent",
            "`url`": "where notices are posted",
            "`content`": "`notice`, or `messages` if notices have the waiting messages",
            "`set_at`": "when it was set",
            "`last`": "the outcome of the last try: `at`, `status` (0 without a response),"
            " `problem` (empty if the notice was accepted), `final` (whether it was given up);"
            " null without one since the relay started",
            "`secret`": "signs the notices; only `webhooks set` prints it",
        },
        after="`webhooks show` and `webhooks remove` print the same fields without the secret,"
        " `webhooks test` those of `last`.",
    ),
    "agents list": JsonOutput(
        {
            "`agents`": "in the order in which they connected: `subject`, `since_us`, `receive`"
            " (`push` or `pull`), `unconfirmed` (messages sent and not acknowledged),"
            " `stuck_since_us` (0 unless it is stuck)",
        },
        after="With `--skill`, `--sender` or `--key`, the entries are those of the directory:"
        " `subject`, `public_key`, `description`, `skills`, `version`, `accepts_requests`,"
        " `connected`, `last_seen` (null if it is unknown). `agents show` prints the fields of one."
        " `agents disconnect` and `agents release` print the `subject`, and the `count` of"
        " connections or messages.",
    ),
    "breakers list": JsonOutput(
        {
            "`breakers`": "by endpoint: `state`, `opened_at` (ms since the epoch, or null), and of"
            " a served relay `consecutive_failures`, `half_open_successes`, `probes_in_flight`,"
            " `touched_at`; null on a data directory",
        },
        after="`breakers reset` prints the `endpoint`, and its state `before`.",
    ),
    "keys new": JsonOutput(
        {
            "`file`": "the key file",
            "`subject`": "the agent",
            "`public_key`": "identifies the agent at a relay",
            "`sealing_key`": "encrypts payloads for the agent",
            "`sealing_signature`": "proves that both keys belong together",
        },
        after="None of it is secret. `keys show` and `keys rotate` print the same fields.",
    ),
    "verify": JsonOutput(
        {
            "`ok`": "whether everything is in order, or was repaired",
            "`data_dir`": "the directory",
            "`in_use_by`": "pid of the relay running there; empty if there is none",
            "`segments`, `events`": "size of the journal",
            "`chained_from`": "first event whose batch names the [batch before"
            " it](../journal.md#batches); 0 if none does",
            "`messages`": "live and dead messages",
            "`findings`": "`part` (`journal`, `index`, `mailboxes`), `where`, `text`, `outcome`:"
            " [verify-findings.md](verify-findings.md)",
        },
        after="With `--public-key`: `ok`, `directory`, `public_keys`, `segments`, `batches`,"
        " `first_seq`, `last_seq`, `first_us`, `last_us`, `chained_from`, `checkpoints` (signatures"
        " by these keys), `signed_seq` and `signed_us` (the last event confirmed, and when),"
        " `batches_after` (written since) and `findings`.",
    ),
    "keys relay": JsonOutput({"`public_key`": "the key that signs the journal"}),
    "rebuild": JsonOutput(
        {
            "`messages`": "number of messages in the new index",
            "`journal_lost_events`": "whether the journal has damaged parts, so that the index may"
            " be inexact",
        }
    ),
}
"""By command, as typed. The pipeline's JSON is in docs/reference/pipeline-json.md."""
