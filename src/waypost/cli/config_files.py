"""`config.json` and `access-rules.json` of a data directory.

A relay that runs there picks up what is written.
"""

from pathlib import Path
from typing import Any

import msgspec

from waypost.cli.results import ConfigCheck
from waypost.files import read_file
from waypost.policy.access import AccessRule
from waypost.policy.bounds import config_file_max_bytes
from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import Settings, lint, merge_settings, to_config_document
from waypost.relay.config.access_file import AccessFile
from waypost.relay.data_dir import DataDir, replace_linked_file
from waypost.relay.errors import RelayError
from waypost.relay.inspection.snapshot import directory_settings
from waypost.wire.http_bodies import RuleList


def check_config(path: Path) -> ConfigCheck:
    """Check whether a relay would accept the file; without a file the defaults apply."""
    try:
        settings = merge_settings(Settings(), read_file(path, config_file_max_bytes))
    except FileNotFoundError:
        return ConfigCheck(str(path), False, True, "", lint(Settings()))
    except OSError as problem:
        return ConfigCheck(str(path), True, False, f"cannot be read: {problem.strerror}", [])
    except InvalidSettings as problem:
        return ConfigCheck(str(path), True, False, str(problem), [])
    return ConfigCheck(str(path), True, True, "", lint(settings))


def save_config(data: DataDir, file: Path) -> ConfigCheck:
    """Make `file` the directory's `config.json`, if a relay would accept it."""
    check = check_config(file)
    if check.valid and check.exists:
        content = msgspec.json.format(read_file(file, config_file_max_bytes), indent=2)
        replace_linked_file(data.config, content + b"\n")
    return check


def effective_config(data: DataDir) -> tuple[dict[str, Any], str]:
    """Return the settings a relay would start with, and why the directory's file is ignored."""
    settings, problem = directory_settings(data)
    return to_config_document(settings), problem


def list_rules(data: DataDir) -> RuleList:
    """Return the rules in the order in which they are applied."""
    return _rule_list(AccessFile(data))


def add_rule(data: DataDir, rule: AccessRule) -> RuleList:
    """Add a rule, replacing one with the same patterns, key and priority."""
    access = AccessFile(data)
    access.add_rule(rule)
    return _rule_list(access)


def remove_rule(
    data: DataDir, from_: str, to: str, from_key: str | None, priority: int | None
) -> RuleList:
    """Remove one rule of a pair, or all. Raises `RelayError` if there is no such rule."""
    access = AccessFile(data)
    if not access.remove_rule(from_, to, from_key, priority):
        which = "" if priority is None else f" with priority {priority}"
        raise RelayError(
            f"no rule from {from_} to {to}{which}: 'waypost rules list' shows all rules"
        )
    return _rule_list(access)


def _rule_list(access: AccessFile) -> RuleList:
    return RuleList(rules=[] if access.problem else access.list_rules(), problem=access.problem)
