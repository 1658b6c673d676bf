"""Generate the pages of docs/reference that follow from the code: settings, command line, metrics.

    .venv/bin/python -m docs.generate

tests/docs/test_reference_pages.py fails when a page is out of date. Types, bounds, defaults,
options, names and most descriptions come from the code. Settings are described here, output and
JSON fields of commands in docs/command_line.py; a setting without a description is an error.
"""

import ast
import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer.main
from msgspec import inspect
from prometheus_client.parser import text_string_to_metric_families

from docs.command_line import INTRO, JSON, OUTPUT
from waypost.cli.app import app
from waypost.cluster.metrics import AppendTimes, NodeFigures, PartitionFigures, render_metrics
from waypost.policy import bounds
from waypost.policy.settings import RELIABILITY, Settings
from waypost.server.metrics import Connected
from waypost.server.server import open_context
from waypost.wire.cluster_bodies import PartitionStatus

REFERENCE = Path(__file__).parent / "reference"
RENEW = "Generated from {source} by `.venv/bin/python -m docs.generate`; a test compares them."

GROUPS = {
    "rate_limit": "Publishes per sender. [policies.md](../policies.md#rate-limit)",
    "circuit_breaker": "Pauses deliveries to a failing endpoint."
    " [policies.md](../policies.md#circuit-breaker)",
    "backpressure": "Messages per mailbox. [policies.md](../policies.md#backpressure)",
    "qos": "The share of an inbox that one sender may fill. A tier's limit of 2^53 or more is no"
    " limit."
    " [policies.md](../policies.md#tiers-and-quotas)",
    "redelivery": "Messages that were not acknowledged. [policies.md](../policies.md#redelivery)",
    "names": "Names that agents of a served relay may bind."
    " [serving.md](../serving.md#reserved-and-closed-names)",
    "signals": "Signals between agents of a served relay. [policies.md](../policies.md#signals)",
    "webhooks": "Hosts that webhooks of agents may name: `hooks.example.com`, `*.example.com` or an"
    " address, with `:8443` or `:*` for other ports than the default."
    " [serving.md](../serving.md#webhooks)",
    "housekeeping": "Retention and cleanup. [storage.md](../storage.md#retention)",
}
MEANINGS = {
    "storage": "keep mailboxes as Maildir files, or in the journal only (faster)",
    "durability": "sync before a publish returns, or only write: a power cut may lose the last"
    " moments",
    "maxHops": "maximum deliveries of a message and its follow-ups; answers take none",
    "defaultTtlMs": "time to live of a message; a publish may ask for less",
    "defaultCallBudget": "maximum calls of a message and its follow-ups",
    "maxPayloadBytes": "largest payload, as JSON",
    "maxScheduleAheadMs": "how far ahead a message may be scheduled; 0: not at all",
    "leaseTimeoutMs": "time until an unacknowledged lease is returned; for a connected agent, since"
    " its last ack, nack or extension",
    "closeStuckAfterMs": "time until the connection of an agent without a sign of life is closed;"
    " 0: never",
    "patternSenders": "senders that may publish to patterns; `authenticated` are all but"
    " `_anonymous`; a served relay has `authenticated`",
    "maxFanout": "most endpoints that one publish may match, 0: no limit; a served relay has 100",
    "maxWorkers": "most connections that may share one mailbox; those that exist stay",
    "watchFiles": "watch `config.json`, `access-rules.json` and drop-ins for changes; read at the"
    " start",
    "relayMessages": "messages and bytes of the relay itself (confirmations, notices) in one"
    " mailbox, beside its caps; `null` is no room of their own; a served relay has 1,000 and 4 MiB",
    "rateLimit.enabled": "whether senders have a rate limit",
    "rateLimit.windowSecs": "length of the window, in seconds",
    "rateLimit.maxPerWindow": "publishes of one sender per window",
    "rateLimit.anonymousMaxPerWindow": "publishes of all senders without a key per window; each of"
    " their networks also has `maxPerWindow`",
    "rateLimit.perSenderOverrides": "limits by sender prefix; the longest prefix wins",
    "signals.windowSecs": "length of the windows, in seconds",
    "signals.maxPerWindow": "signals of one sender per window",
    "signals.maxPerPair": "signals of one sender to one agent per window",
    "signals.maxBytes": "largest signal, as JSON",
    "circuitBreaker.enabled": "whether endpoints have circuit breakers",
    "circuitBreaker.failureThreshold": "consecutive failures that open it",
    "circuitBreaker.cooldownMs": "time until an open breaker allows a probe",
    "circuitBreaker.halfOpenProbeCount": "maximum probes in flight",
    "circuitBreaker.successToClose": "successful probes that close it",
    "backpressure.enabled": "whether mailboxes have a message cap",
    "backpressure.maxMailboxSize": "messages per mailbox, including leased ones",
    "backpressure.pressureWarningAt": "fill level at which senders get a warning signal",
    "qos.enabled": "whether there are quotas by tier, and a byte cap",
    "qos.tier1.maxEnvelopes": "messages of an unknown sender in one inbox",
    "qos.tier1.maxBytes": "bytes of an unknown sender in one inbox",
    "qos.tier2.maxEnvelopes": "messages of an acknowledged sender in one inbox",
    "qos.tier2.maxBytes": "bytes of an acknowledged sender in one inbox",
    "qos.tier3.maxEnvelopes": "messages of an active sender in one inbox",
    "qos.tier3.maxBytes": "bytes of an active sender in one inbox",
    "qos.bidirectionalWindowMs": "maximum age of both directions for tier 3",
    "qos.inboxMaxBytes": "bytes per inbox",
    "qos.overflow": "in a full inbox, evict from the least known and there the heaviest sender,"
    " from the heaviest whatever its tier, or reject",
    "qos.strangers": "messages and bytes of all unknown senders together in one inbox; `null` is"
    " no such limit",
    "redelivery.maxDeliveries": "failed deliveries that make a message a dead letter; 0: no end",
    "redelivery.firstDelayMs": "delay of the second redelivery; the first is immediate, later ones"
    " wait twice as long each",
    "redelivery.maxDelayMs": "longest delay",
    "names.policy": "who may bind a name: the first key; for reserved names only the operator;"
    " for all names only the operator",
    "names.reserved": "patterns of the names that `reserved` reserves",
    "names.maxPerKey": "names that one key may hold",
    "names.newPerMinute": "names that may be bound within a minute",
    "names.newPerAddressMinute": "of those, from one IPv4 address or one IPv6 /64 network",
    "names.unusedExpiryMs": "time until a name that was never used expires",
    "webhooks.allowedHosts": "hosts in public networks, with https only",
    "webhooks.privateHosts": "hosts that may be in private networks, too, and without TLS there",
    "housekeeping.sweepIntervalMs": "interval between sweeps",
    "housekeeping.breakerIdleMs": "time until an idle breaker is dropped",
    "housekeeping.deadLetterRetentionMs": "retention of dead letters",
    "housekeeping.duplicateWindowMs": "retention of message ids chosen by senders",
    "housekeeping.journalRetentionMs": "retention of sealed segments that no message needs",
    "housekeeping.segmentMaxBytes": "size at which a segment is sealed",
    "housekeeping.segmentMaxAgeMs": "age at which a segment is sealed",
}


def settings_page() -> str:
    """Return the page of all `Settings`, by their names in `config.json` and Python, and bounds."""
    described = inspect.type_info(Settings)
    assert isinstance(described, inspect.StructType)
    lines = [
        "# Settings reference",
        "",
        RENEW.format(source="`waypost.policy.settings` and `waypost.policy.bounds`"),
        "",
        "Keys of `config.json`. How the file is read and merged, when it takes effect, and the"
        " defaults of\na served relay: [configuration.md](../configuration.md). Times are"
        " milliseconds unless the name\nsays otherwise.",
        "",
        "## Settings",
        "",
        *_table(_rows(described, "")),
    ]
    for field in described.fields:
        if isinstance(field.type, inspect.StructType):
            outer = "reliability." if field.encode_name in RELIABILITY else ""
            title = f"### `{outer}{field.encode_name}`"
            if field.name != field.encode_name:
                title += f" (`{field.name}`)"
            inner = _table(_rows(field.type, f"{field.encode_name}."))
            lines += ["", title, "", GROUPS[field.name], "", *inner]
    return "\n".join([*lines, "", *_bounds(), ""])


def _rows(described: inspect.StructType, prefix: str) -> Iterator[tuple[str, ...]]:
    """Yield key, Python name, default, range and meaning of each field; tiers are expanded."""
    for field in described.fields:
        if isinstance(field.type, inspect.StructType):
            if prefix:
                for key, name, _, values, meaning in _rows(
                    field.type, f"{prefix}{field.encode_name}."
                ):
                    default = getattr(field.default, name)
                    yield (
                        f"{field.encode_name}.{key}",
                        f"{field.name}.{name}",
                        json.dumps(default),
                        values,
                        meaning,
                    )
            continue
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        text = "" if default is msgspec.NODEFAULT else json.dumps(default)
        if not isinstance(default, bool | int | float):
            text = f"`{text}`"
        meaning = MEANINGS[f"{prefix}{field.encode_name}"]
        yield field.encode_name, field.name, text, _values_of(field.type), meaning


def _table(rows: Iterator[tuple[str, ...]]) -> list[str]:
    return [
        "| key | Python | default | values | meaning |",
        "|---|---|---|---|---|",
        *(
            f"| `{k}` | `{p}` | {default} | {values} | {why} |"
            for k, p, default, values, why in rows
        ),
    ]


def _values_of(type_: inspect.Type) -> str:
    match type_:
        case inspect.BoolType():
            return "`true`, `false`"
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{json.dumps(value)}`" for value in values)
        case inspect.IntType(ge=low, le=high):
            return f"integer, {_range(low, high)}"
        case inspect.FloatType(ge=low, le=high):
            return f"number, {_range(low, high)}"
        case inspect.UnionType(types=(inspect.StructType(fields=fields), inspect.NoneType())):
            names = " and ".join(f"`{field.encode_name}`" for field in fields)
            return f"`null`, or an object with {names}"
        case inspect.ListType(item_type=inspect.StrType(), max_length=most):
            return f"list of up to {most:,} patterns"
        case inspect.DictType(value_type=values):
            return f"object, its values {_values_of(values)}"
        case _:
            raise TypeError(f"no description of {type_}")


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"from {low}"
    return f"{low} to {'2^53' if high == bounds.number_max else high}"


def _bounds() -> list[str]:
    """Return the hard bounds, with the comments of their module."""
    body = ast.parse(Path(bounds.__file__).read_text(encoding="utf-8")).body
    rows = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                comment = " ".join(str(after.value.value).split())
            rows.append(f"| `{node.target.id}` | {getattr(bounds, node.target.id):,} | {comment} |")
    return [
        "## Hard bounds",
        "",
        "No setting lifts these. They are in `policy/bounds.py`, with units in their names.",
        "",
        "| bound | value | |",
        "|---|--:|---|",
        *rows,
    ]


def command_line_page() -> str:
    """Return the page of all commands: help, options, sample output and JSON fields."""
    commands = dict(_commands(typer.main.get_command(app)))
    lines = [
        "# Command line reference",
        "",
        RENEW.format(source="the commands and `docs/command_line.py`"),
        "",
        INTRO.rstrip(),
        "",
        "## Commands",
        "",
        *(f"- [`waypost {name}`](#waypost-{name.replace(' ', '-')})" for name in commands),
    ]
    for name, command in commands.items():
        lines += ["", f"## waypost {name}", "", *_command(name, command), *_output(name)]
    return "\n".join([*lines, ""])


def _output(name: str) -> Iterator[str]:
    """Yield the sample output of a command, and its JSON fields by what is typed."""
    if name in OUTPUT:
        yield from ("", "```text", OUTPUT[name].rstrip(), "```")
    for typed in (name, f"{name} --group", f"{name} --exec"):
        if typed in JSON:
            fields, before, after = JSON[typed]
            yield from ("", f"### JSON of `waypost {typed}`", "")
            if before:
                yield from (before, "")
            yield from ("| field | |", "|---|---|")
            yield from (f"| {field} | {meaning} |" for field, meaning in fields.items())
            if after:
                yield from ("", after)
    if name.startswith("pipeline ") and name not in ("pipeline run", "pipeline serve"):
        title = name.removeprefix("pipeline ")
        yield from ("", f"JSON fields: [pipeline-json.md](pipeline-json.md#{title}).")


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _command(name: str, command: Any) -> Iterator[str]:
    prose, _, examples = (command.help or "").partition("\b\n")
    context = command.make_context(name, [], resilient_parsing=True)
    pieces = [re.sub(r"[{}]", "", piece).upper() for piece in command.collect_usage_pieces(context)]
    yield from ("```text", " ".join(["waypost", name, *pieces]), "```", "")
    for paragraph in prose.strip().split("\n\n"):
        yield from (_plain(paragraph), "")
    shown = [record for one in command.params if (record := one.get_help_record(context))]
    if shown:
        yield from ("| | | |", "|---|---|---|")
    for option, text in shown:
        name = re.sub(r" <[\w\[\]]+>$", "", option)
        meaning, _, rest = text.partition("  [")
        yield f"| `{_cell(name)}` | {_cell(_plain(meaning))} | {_cell(_extra(rest))} |"
    if examples:
        lines = [line.strip() for line in examples.splitlines() if line.startswith("  ")]
        yield from ("", "```sh", *lines, "```")


def _extra(text: str) -> str:
    """Format default, variable and range, which help shows in brackets."""
    parts = text.removesuffix("]").split("; ") if text else []
    formatted = [
        re.sub(
            r"^env var: (\w+)$", r"or `\1`", re.sub(r"^default: \(?(.*?)\)?$", r"default: \1", one)
        )
        for one in parts
    ]
    return "; ".join(formatted)


def _plain(text: str) -> str:
    return re.sub(r"\[/?(?:bold|dim|italic)\]", "", text).replace("<", "\\<")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def metrics_page() -> str:
    """Return the page of all metrics at `/metrics` of a served relay."""
    with tempfile.TemporaryDirectory() as directory:
        shown = asyncio.run(_metrics(Path(directory)))
    lines = [
        "# Metrics reference",
        "",
        RENEW.format(source="the response of `/metrics`"),
        "",
        "Metrics for Prometheus, readable without a token; no label holds a name that an agent"
        " chose.\nCounters start at zero with each process, except `waypost_journal_events_total`."
        "\nWhat to watch: [serving.md](../serving.md#monitoring).",
        "",
        "| metric | type | labels | |",
        "|---|---|---|---|",
    ]
    lines += _metric_rows(shown)
    node = [
        "## A node of a cluster",
        "",
        "At `/metrics` of every node. Those of a relay, above, are at `/p/N/metrics` of the node"
        " that owns\npartition N.",
        "",
        "| metric | type | labels | |",
        "|---|---|---|---|",
        *_metric_rows(_node_metrics()),
    ]
    return "\n".join([*lines, "", *_label_values(shown), "", *node, ""])


def _metric_rows(shown: str) -> Iterator[str]:
    for family in text_string_to_metric_families(shown):
        if family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(
            label for sample in family.samples for label in sample.labels if label != "le"
        )
        names = ", ".join(f"`{label}`" for label in labels)
        yield f"| `{name}` | {family.type} | {names} | {family.documentation} |"


def _node_metrics() -> str:
    partition = PartitionFigures(0, True, False, 1, PartitionStatus(number=0))
    return render_metrics(NodeFigures(1, True, [partition]), AppendTimes()).decode()


async def _metrics(directory: Path) -> str:
    async with open_context(directory) as context:
        context.http_metrics.record("GET", "/healthz", 200, 0.001)  # so that its labels appear
        totals = context.relay.inspect().totals()
        connected = Connected(0, 0, context.hub.signals, context.webhooks.notices)
        return context.http_metrics.render(context.relay, totals, connected).decode()


def _label_values(shown: str) -> list[str]:
    """Return the labels whose values are known in advance, with these values."""
    known: dict[tuple[str, str], dict[str, None]] = {}
    for family in text_string_to_metric_families(shown):
        for sample in family.samples:
            for label, value in sample.labels.items():
                if "_http_" not in family.name:
                    name = f"{family.name}_total" if family.type == "counter" else family.name
                    known.setdefault((name, label), {})[value] = None
    rows = [
        f"| `{name}` | `{label}` | {', '.join(f'`{value}`' for value in values)} |"
        for (name, label), values in known.items()
    ]
    return [
        "## Values of labels",
        "",
        "| metric | label | values |",
        "|---|---|---|",
        *rows,
        "",
        "`route` is the path of an operation with its parameter names, as in [http.md](../http.md);"
        "\n`method` and `status` are those of HTTP.",
    ]


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "command-line.md": command_line_page,
    "metrics.md": metrics_page,
}


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
