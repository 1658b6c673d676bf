"""The pages of docs/reference that are made from the code: settings, command line, metrics.

    .venv/bin/python -m docs.generate

writes them. tests/docs/test_reference_pages.py fails when one of them is not what would be written
now. Types, bounds, defaults, options, names and most meanings come from the code; what a setting
means is said here, and a setting about which nothing is said cannot be written down.
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

from waypost.cli.app import app
from waypost.policy import bounds
from waypost.policy.settings import RELIABILITY, Settings
from waypost.server.server import open_context

REFERENCE = Path(__file__).parent / "reference"
RENEW = "Made by `.venv/bin/python -m docs.generate` from {source}; a test compares them."

GROUPS = {
    "rate_limit": "How often one sender may publish. [policies.md](../policies.md#rate-limit)",
    "circuit_breaker": "When an endpoint is left alone."
    " [policies.md](../policies.md#circuit-breaker)",
    "backpressure": "How full a mailbox may be. [policies.md](../policies.md#backpressure)",
    "qos": "How much of an inbox one sender may fill."
    " [policies.md](../policies.md#tiers-and-quotas)",
    "housekeeping": "What is kept, and for how long. [storage.md](../storage.md#retention)",
}
MEANINGS = {
    "storage": "show mailboxes as files, or keep them in the journal alone (faster)",
    "durability": "sync before a publish returns, or only write: a power cut may take the last"
    " moments",
    "maxHops": "deliveries a message and its follow-ups may make",
    "defaultTtlMs": "time to live of a message; a publish may ask for less",
    "defaultCallBudget": "calls a message and its follow-ups may make",
    "maxPayloadBytes": "largest payload, as JSON",
    "leaseTimeoutMs": "a lease not acknowledged for so long comes back",
    "watchFiles": "notice changes of `config.json`, `access-rules.json` and drop-ins; read at the"
    " start",
    "rateLimit.enabled": "limit senders at all",
    "rateLimit.windowSecs": "seconds for which a publish counts",
    "rateLimit.maxPerWindow": "publishes of one sender in a window",
    "rateLimit.perSenderOverrides": "sender prefix → limit; the longest prefix wins",
    "circuitBreaker.enabled": "have breakers at all",
    "circuitBreaker.failureThreshold": "failures in a row that open it",
    "circuitBreaker.cooldownMs": "how long it stays open",
    "circuitBreaker.halfOpenProbeCount": "probes in flight at a time",
    "circuitBreaker.successToClose": "good probes that close it",
    "backpressure.enabled": "cap mailboxes at all",
    "backpressure.maxMailboxSize": "messages in a mailbox, leased ones included",
    "backpressure.pressureWarningAt": "share from which senders get a warning signal",
    "qos.enabled": "quotas by tier, and the byte cap",
    "qos.tier1.maxEnvelopes": "messages an unknown sender may have in one inbox",
    "qos.tier1.maxBytes": "their bytes",
    "qos.tier2.maxEnvelopes": "the same for an acknowledged sender",
    "qos.tier2.maxBytes": "their bytes",
    "qos.tier3.maxEnvelopes": "the same for an active sender",
    "qos.tier3.maxBytes": "their bytes",
    "qos.bidirectionalWindowMs": "how recent both directions must be for tier 3",
    "qos.inboxMaxBytes": "bytes in one inbox",
    "qos.overflow": "what happens when an inbox has no more bytes",
    "housekeeping.sweepIntervalMs": "how often the sweeper comes",
    "housekeeping.breakerIdleMs": "a breaker untouched for so long is forgotten",
    "housekeeping.deadLetterRetentionMs": "how long dead letters are kept",
    "housekeeping.duplicateWindowMs": "how long chosen ids are remembered",
    "housekeeping.journalRetentionMs": "how long sealed segments are kept that nothing needs",
    "housekeeping.segmentMaxBytes": "size at which a segment is sealed",
    "housekeeping.segmentMaxAgeMs": "age at which a segment is sealed",
}


def settings_page() -> str:
    """Every field of `Settings` as `config.json` and Python know it, and every hard bound."""
    described = inspect.type_info(Settings)
    assert isinstance(described, inspect.StructType)
    lines = [
        "# Settings reference",
        "",
        RENEW.format(source="`waypost.policy.settings` and `waypost.policy.bounds`"),
        "",
        "Keys are those of `config.json`. How the file is read and merged, when it takes effect,"
        " and\nwhich defaults a served relay has: [configuration.md](../configuration.md). Times"
        " are milliseconds\nunless the name says otherwise.",
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
    """Key, Python name, default, range and meaning of each field; tiers are opened up."""
    for field in described.fields:
        if isinstance(field.type, inspect.StructType):
            if prefix:
                for key, name, _, takes, meaning in _rows(
                    field.type, f"{prefix}{field.encode_name}."
                ):
                    default = getattr(field.default, name)
                    yield (
                        f"{field.encode_name}.{key}",
                        f"{field.name}.{name}",
                        json.dumps(default),
                        takes,
                        meaning,
                    )
            continue
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        told = "" if default is msgspec.NODEFAULT else json.dumps(default)
        if not isinstance(default, bool | int | float):
            told = f"`{told}`"
        meaning = MEANINGS[f"{prefix}{field.encode_name}"]
        yield field.encode_name, field.name, told, _takes(field.type), meaning


def _table(rows: Iterator[tuple[str, ...]]) -> list[str]:
    return [
        "| key | Python | default | takes | meaning |",
        "|---|---|---|---|---|",
        *(f"| `{k}` | `{p}` | {default} | {takes} | {why} |" for k, p, default, takes, why in rows),
    ]


def _takes(type_: inspect.Type) -> str:
    match type_:
        case inspect.BoolType():
            return "`true`, `false`"
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{json.dumps(value)}`" for value in values)
        case inspect.IntType(ge=low, le=high):
            return f"integer, {_range(low, high)}"
        case inspect.FloatType(ge=low, le=high):
            return f"number, {_range(low, high)}"
        case inspect.DictType(value_type=values):
            return f"object, its values {_takes(values)}"
        case _:
            raise TypeError(f"no words for {type_}")


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"from {low}"
    return f"{low} to {'2^53' if high == bounds.number_max else high}"


def _bounds() -> list[str]:
    """Hard bounds, with what their module says about them."""
    body = ast.parse(Path(bounds.__file__).read_text(encoding="utf-8")).body
    rows = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            told = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                told = " ".join(str(after.value.value).split())
            rows.append(f"| `{node.target.id}` | {getattr(bounds, node.target.id):,} | {told} |")
    return [
        "## Hard bounds",
        "",
        "No setting lifts these. They stand in `policy/bounds.py`, with units in their names.",
        "",
        "| bound | value | |",
        "|---|--:|---|",
        *rows,
    ]


def command_line_page() -> str:
    """Every command with its arguments and options."""
    commands = dict(_commands(typer.main.get_command(app)))
    lines = [
        "# Command line reference",
        "",
        RENEW.format(source="the commands themselves"),
        "",
        "What the commands are for, with examples and what they print: [cli.md](../cli.md)."
        " The fields\nof `--json`: [command-line-json.md](command-line-json.md),"
        " [pipeline-json.md](pipeline-json.md).\nEach command also has `-h` and `--help`.",
        "",
        *(f"- [`waypost {name}`](#waypost-{name.replace(' ', '-')})" for name in commands),
    ]
    for name, command in commands.items():
        lines += ["", f"## waypost {name}", "", *_command(name, command)]
    return "\n".join([*lines, ""])


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
        meaning, _, rest = text.partition("  [")
        yield f"| `{_cell(option)}` | {_cell(_plain(meaning))} | {_cell(_extra(rest))} |"
    if examples:
        told = [line.strip() for line in examples.splitlines() if line.startswith("  ")]
        yield from ("", "```text", *told, "```")


def _extra(text: str) -> str:
    """Default, variable and range, as help tells them in brackets."""
    parts = text.removesuffix("]").split("; ") if text else []
    told = [
        re.sub(
            r"^env var: (\w+)$", r"or `\1`", re.sub(r"^default: \(?(.*?)\)?$", r"default: \1", one)
        )
        for one in parts
    ]
    return "; ".join(told)


def _plain(text: str) -> str:
    return re.sub(r"\[/?(?:bold|dim|italic)\]", "", text).replace("<", "\\<")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def metrics_page() -> str:
    """Everything that `/metrics` of a served relay tells."""
    with tempfile.TemporaryDirectory() as directory:
        shown = asyncio.run(_metrics(Path(directory)))
    lines = [
        "# Metrics reference",
        "",
        RENEW.format(source="what a relay tells at `/metrics`"),
        "",
        "For Prometheus, open to whoever reaches the port; no label holds a name that an agent"
        " chose.\nCounters begin at zero with each start of the process, all but"
        " `waypost_journal_events_total`."
        "\nWhat to watch: [serving.md](../serving.md#monitoring).",
        "",
        "| metric | type | labels | |",
        "|---|---|---|---|",
    ]
    for family in text_string_to_metric_families(shown):
        if family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(
            label for sample in family.samples for label in sample.labels if label != "le"
        )
        told = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {family.type} | {told} | {family.documentation} |")
    return "\n".join([*lines, "", *_values(shown), ""])


async def _metrics(directory: Path) -> str:
    async with open_context(directory) as services:
        services.meters.answered("GET", "/healthz", 200, 0.001)  # or there would be no labels
        return services.meters.render(services).decode()


def _values(shown: str) -> list[str]:
    """Labels whose values are known in advance, and these values."""
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
        "`route` is the path of an operation with the names of its parameters, as in"
        " [http.md](../http.md);\n`method` and `status` are those of HTTP.",
    ]


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "command-line.md": command_line_page,
    "metrics.md": metrics_page,
}


def main() -> None:
    """Write all pages."""
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
