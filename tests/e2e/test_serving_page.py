"""Compare the pages for operators with the code: options, defaults, bounds, figures."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.cli.serve_process import serving
from tests.e2e.test_readme import blocks, leaves, read
from waypost import Settings
from waypost.cli.app import app
from waypost.policy import bounds
from waypost.policy import reserved_names as reserved
from waypost.policy.access import parse_rules
from waypost.policy.names import DAY_MS
from waypost.policy.settings import merge_settings, to_config_document
from waypost.server import websocket
from waypost.server.context import SERVED_SETTINGS, ServeOptions
from waypost.server.http.callers import OPERATOR
from waypost.server.http.routing import BODY_WAIT_MAX_S
from waypost.server.identity.authenticator import Authenticator
from waypost.server.identity.tokens import TOKEN_ALIVE_MS
from waypost.server.metrics import Connected
from waypost.server.server import Listen, open_context
from waypost.testing import ManualClock

PAGE = "docs/serving.md"
OPTIONS, RATE = ServeOptions(), SERVED_SETTINGS.rate_limit
NAMES = SERVED_SETTINGS.names
PAGES = (PAGE, "docs/configuration.md", "docs/http.md", "docs/wire-protocol.md", "docs/privacy.md")


def section(page: str, heading: str) -> str:
    return read(page).split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_every_option_of_serve_is_on_the_page() -> None:
    serve: Any = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    table = read(PAGE).split("| option |", 1)[1].split("\n\n", 1)[0]
    options = {
        option
        for parameter in serve.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option != "--help"
    }
    assert set(re.findall(r"--[a-z][\w-]*", table)) == options


def test_the_address_and_the_batch_on_the_page_are_the_defaults() -> None:
    page, listen = read(PAGE), Listen()
    assert f"listens on {listen.host}:{listen.port} unless" in page
    assert f"| `--batch N` | {OPTIONS.batch} |" in page


def test_the_page_on_configuration_lists_the_defaults_of_a_served_relay() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| (\w+) \|", section("docs/configuration.md", "A served relay"), re.M
    )
    usual = dict(leaves(to_config_document(Settings())))
    served = dict(leaves(to_config_document(SERVED_SETTINGS)))
    differs = {key: str(value).lower() for key, value in served.items() if value != usual.get(key)}
    assert dict(rows) == differs


@pytest.mark.process
def test_names_and_rules_on_the_page_keep_strangers_out(tmp_path: Path) -> None:
    settings, rules, hosts = blocks(PAGE, "json")
    assert len(parse_rules(rules.encode())) == 3
    assert merge_settings(Settings(), hosts.encode()).webhooks.private_hosts
    (tmp_path / "names.json").write_text(settings)
    commands = section(PAGE, "Identity").split("```sh\n")[-1].split("```")[0].splitlines()
    assert len(commands) == 4
    with serving(tmp_path, "--no-anonymous") as relay:
        user, operator = relay.user(), relay.operator()
        for line in commands:
            words = line.replace("names.json", str(tmp_path / "names.json")).split()[1:]
            if words[:2] == ["names", "bind"]:
                words[3] = user.json("keys", "new", words[2])["public_key"]
            operator(*words)
        for rule in parse_rules(rules.encode()):
            arguments = (rule.action, rule.from_, rule.to, "--priority", str(rule.priority))
            operator("rules", "add", *arguments)
        for sender in ("agent.web", "agent.ops.deploy"):
            user("send", "agent.billing", "1", "--sender", sender)
        user.create_keys("agent.ops.mallory", "agent.other")
        reserved = user("send", "agent.billing", "1", "--sender", "agent.ops.mallory", exits=1)
        assert "agent.ops.mallory is reserved" in reserved.stderr
        denied = user("send", "agent.billing", "1", "--sender", "agent.other", exits=3)
        assert "access_denied" in denied.stdout + denied.stderr
        assert len(user.json("inbox", "agent.billing")["messages"]) == 2


def test_tier_limits_on_the_page_are_the_defaults() -> None:
    qos = SERVED_SETTINGS.qos
    limits_text = section(PAGE, "Limits and rejections").replace("\n", " ")
    for limits, unit in ((qos.tier1, 10), (qos.tier2, 20), (qos.tier3, 20)):
        size = f"{limits.max_bytes >> unit} {'KiB' if unit == 10 else 'MiB'}"
        assert re.search(rf"{limits.max_envelopes}( messages)? \({size}\)", limits_text)


@pytest.mark.parametrize(
    "text",
    [
        f"ended after {websocket.AUTH_TIMEOUT_S:g} s",
        f"at most {bounds.frame_overhead_max_bytes >> 10} KiB until then",
        f"once {bounds.outbox_max_operations:,} operations wait",
        f"after {OPTIONS.unconfirmed_max} messages or {bounds.unconfirmed_max_bytes >> 20} MiB",
        f"up to {bounds.rejected_pause_max_ms // 1000} s a frame",
        f"more than {bounds.unanswered_max_operations:,} operations",
        f"after {websocket.BROKEN_FRAMES_MAX} broken frames",
        f"408 after {BODY_WAIT_MAX_S:g} s",
        f"the {bounds.challenges_max:,} newest",
        f"{bounds.connections_max:,} connections at once",
        f"Up to {bounds.identities_max:,} subjects",
        f"at most {OPTIONS.mailboxes_made_max:,} by that way",
        f"good for {TOKEN_ALIVE_MS // 60_000} minutes",
        f"{NAMES.max_per_key} for each key",
        f"{NAMES.new_per_address_minute} a minute from one address",
        f"{NAMES.new_per_minute} a minute in total",
        f"expires {NAMES.unused_expiry_ms // DAY_MS} days after",
        f"Above {bounds.crowded_identities_max:,} names it expires after an hour",
        f"{RATE.max_per_window} in {RATE.window_secs} s",
    ],
)
def test_a_figure_on_the_page_equals_the_code(text: str) -> None:
    assert text in re.sub(r"\s+", " ", read(PAGE))


def test_every_reserved_name_is_on_the_page() -> None:
    page = read(PAGE)
    names = (reserved.RELAY, reserved.ANONYMOUS, OPERATOR)
    assert [name for name in names if f"`{name}`" not in page] == []


def test_files_of_a_served_relay_are_in_the_backup_table(tmp_path: Path) -> None:
    Authenticator.open(tmp_path, ManualClock()).close()
    table = section(PAGE, "Backup")
    assert [path.name for path in tmp_path.iterdir() if f"`{path.name}`" not in table] == []


async def test_metrics_named_on_pages_exist(tmp_path: Path) -> None:
    async with open_context(tmp_path) as context:
        totals = context.relay.inspect().totals()
        connected = Connected(0, 0, context.hub.signals, context.webhooks.notices)
        shown = context.http_metrics.render(context.relay, totals, connected).decode()
    named = {name for page in PAGES for name in re.findall(r"\bwaypost_\w+", read(page))}
    assert named
    assert [name for name in sorted(named) if f"\n{name}" not in shown] == []
