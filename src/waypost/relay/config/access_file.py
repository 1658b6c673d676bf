"""Access rules on disk: `<data>/access-rules.json`.

Failures and answers:
  no file                    no rules: every publish is allowed
  unreadable, one bad entry  every publish is denied, and the file is not overwritten, until it
  a pipe, a device, huge,    is repaired or deleted; opening a pipe does not wait
  a link to nothing
  crash while writing        the old file or the new one, never a partial one
"""

import logging
from collections.abc import Callable

import msgspec

from waypost.files import is_transient, read_file
from waypost.policy.access import DENY_ALL, AccessResult, AccessRule, AccessRules, parse_rules
from waypost.policy.bounds import config_file_max_bytes
from waypost.policy.errors import InvalidRule
from waypost.relay.data_dir import DataDir, replace_linked_file
from waypost.relay.errors import RulesFileBroken

log = logging.getLogger("waypost.relay")


class AccessFile:
    """The access rules in force; every change is on disk when the call returns."""

    def __init__(self, data: DataDir) -> None:
        self._path = data.rules
        self._rules = AccessRules()
        self.restricts = False
        """Whether there is at least one rule."""
        self.problem = ""
        self.on_change: Callable[[], None] = lambda: None
        self.key_of: Callable[[str], str | None] = lambda sender: None
        """Returns the public key of a sender; a server that authenticates senders sets it."""
        self.reload()

    def check_access(self, from_: str, to: str) -> AccessResult:
        """Return whether the sender `from_` may publish to `to`, and by which rule."""
        key = self.key_of(from_) if self._rules.name_keys else None
        return self._rules.check_access(from_, to, key)

    def list_rules(self) -> list[AccessRule]:
        """Return the rules in the order in which they are tried."""
        return self._rules.list_rules()

    def add_rule(self, rule: AccessRule) -> None:
        """Add `rule`, replacing one with the same patterns, key and priority."""
        self._save(self._rules.with_rule(rule))

    def remove_rule(
        self, from_: str, to: str, from_key: str | None = None, priority: int | None = None
    ) -> bool:
        """Remove all rules with these patterns and this key, or no key; return if there was one.

        With `priority`, remove only the rule with that priority.
        """
        kept = self._rules.without_rule(from_, to, from_key, priority)
        found = len(kept.list_rules()) < len(self._rules.list_rules())
        self._save(kept)
        return found

    def reload(self) -> bool:
        """Read the file again; return whether anything changed.

        Raises `OSError` if it cannot be opened now, for want of descriptors: try again.
        """
        before = (self._rules.list_rules(), self.problem)
        try:
            content = read_file(self._path, config_file_max_bytes)
            self._rules, self.problem = AccessRules(parse_rules(content)), ""
        except FileNotFoundError:
            self._rules, self.problem = AccessRules(), ""
        except (OSError, InvalidRule) as problem:
            if is_transient(problem):
                raise
            self._rules = AccessRules(DENY_ALL)
            self.problem = (
                f"{self._path} is invalid, so every publish is denied: {problem};"
                " repair or delete it"
            )
            if self.problem != before[1]:
                log.error("%s", self.problem)
        self.restricts = bool(self._rules)
        changed = (self._rules.list_rules(), self.problem) != before
        if changed:
            self.on_change()
        return changed

    def _save(self, rules: AccessRules) -> None:
        if self.problem:
            raise RulesFileBroken(self.problem)
        content = msgspec.json.format(msgspec.json.encode(rules.list_rules()), indent=2)
        replace_linked_file(self._path, content + b"\n")
        self._rules = rules
        self.restricts = bool(rules)
        self.on_change()
