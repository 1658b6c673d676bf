"""Numbers of a data directory, and what is to be said about its settings."""

from pathlib import Path
from typing import Any

import msgspec

from waypost.cli.facts import ConfigCheck, Stats
from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import Settings, lint, merge_settings, to_config_document
from waypost.relay.data_dir import DataDir, replace_file
from waypost.relay.inspection.snapshot import Look, directory_settings, recent
from waypost.relay.inspection.stats import mailbox_stats
from waypost.wire.envelopes import instant

COUNTED_MAX_BYTES = 64 * 1024 * 1024
"""How much of the newest journal is counted: enough to tell what is going on, and quick."""


def stats_of(seen: Look) -> Stats:
    """What is in the directory now, and what happened there lately."""
    endpoints = [
        one
        for one in mailbox_stats(seen.state, seen.settings)
        if seen.state.mailboxes[one.subject].registered or one.pending + one.leased + one.dead
    ]
    by_status = {
        "pending": sum(one.pending for one in endpoints),
        "leased": sum(one.leased for one in endpoints),
        "dead": sum(one.dead for one in endpoints),
    }
    lately = recent(seen.data, COUNTED_MAX_BYTES)
    return Stats(
        url="",
        data_dir=str(seen.data.root),
        in_use_by=seen.owner,
        seq=seen.state.seq,
        last_event_at=instant(seen.state.at_us) if seen.state.seq else None,
        storage=seen.settings.storage,
        durability=seen.settings.durability,
        total_messages=sum(by_status.values()),
        by_status=by_status,
        endpoints=endpoints,
        counted_since=instant(lately.since_us) if lately.since_us else None,
        events=dict(lately.events),
        rejected=dict(lately.rejected),
        connected=[],
        problems=seen.problems,
    )


def save_config(data: DataDir, file: Path) -> ConfigCheck:
    """Make `file` the directory's own, if a relay would take it."""
    found = check_config(file)
    if found.valid and found.exists:
        content = msgspec.json.format(file.read_bytes(), indent=2)
        replace_file(data.config, content + b"\n")
    return found


def check_config(path: Path) -> ConfigCheck:
    """Whether a relay would take the file; one that is not there leaves the defaults."""
    try:
        settings = merge_settings(Settings(), path.read_bytes())
    except FileNotFoundError:
        return ConfigCheck(str(path), False, True, "", lint(Settings()))
    except OSError as problem:
        return ConfigCheck(str(path), True, False, f"cannot be read: {problem.strerror}", [])
    except InvalidSettings as problem:
        return ConfigCheck(str(path), True, False, str(problem), [])
    return ConfigCheck(str(path), True, True, "", lint(settings))


def effective_settings(data: DataDir) -> tuple[dict[str, Any], str]:
    """The settings a relay would start with, as a `config.json`, and why a file is ignored."""
    settings, problem = directory_settings(data)
    return to_config_document(settings), problem
