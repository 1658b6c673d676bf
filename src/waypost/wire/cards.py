"""Cards of agents: what an agent says about itself, and an entry of the directory.

Rule 1  A card is text of a stranger: short, printable, on one line. Skills are words.
Rule 2  The relay keeps it and shows it with the key that owns the name. It proves nothing.
"""

import re
from datetime import datetime

import msgspec

from waypost.policy.bounds import (
    card_description_max_bytes,
    card_skill_max_chars,
    card_skills_max,
    card_version_max_chars,
)
from waypost.policy.errors import InvalidMessage

_is_skill = re.compile(rf"[a-z0-9][a-z0-9+#._-]{{0,{card_skill_max_chars - 1}}}").fullmatch


class AgentCard(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What an agent says about itself. Raises `InvalidMessage` for a field out of its bounds.

    `skills` are words by which others find it. `accepts_requests`: it answers requests of others.
    """

    description: str = ""
    skills: tuple[str, ...] = ()
    version: str = ""
    accepts_requests: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_text("description", self.description, card_description_max_bytes)
        _check_text("version", self.version, card_version_max_chars)
        skills: object = self.skills
        if not isinstance(skills, list | tuple):
            raise InvalidMessage(f"skills must be a list of words, not {skills!r:.40}")
        if len(skills) > card_skills_max:
            raise InvalidMessage(f"a card has at most {card_skills_max} skills, not {len(skills)}")
        for skill in skills:
            validate_skill(skill)
        msgspec.structs.force_setattr(self, "skills", tuple(skills))
        if not isinstance(self.accepts_requests, bool):
            raise InvalidMessage("accepts_requests must be true or false")


class AgentInfo(msgspec.Struct, kw_only=True):
    """An agent in the directory: its key, its card, and whether it is connected.

    `last_seen` is when it last disconnected or read its inbox since the relay began; None if that
    is unknown, or it is connected.
    """

    subject: str
    public_key: str
    description: str = ""
    skills: tuple[str, ...] = ()
    version: str = ""
    accepts_requests: bool = True
    connected: bool = False
    last_seen: datetime | None = None


class AgentList(msgspec.Struct, kw_only=True):
    """One page of agents, sorted by subject; `next` is the `after` of the next page.

    A page may hold fewer than asked for, or none, and not be the last.
    """

    agents: list[AgentInfo]
    next: str | None = None


def validate_skill(skill: object) -> str:
    """Return `skill`. Raises `InvalidMessage` unless it is a word that a card may have."""
    if not isinstance(skill, str) or not _is_skill(skill):
        raise InvalidMessage(
            f"skill {skill!r:.40} must be one word of lower-case letters, digits and + # . _ -,"
            f" at most {card_skill_max_chars} characters"
        )
    return skill


def _check_text(name: str, text: object, most: int) -> None:
    if not isinstance(text, str) or not text.isprintable():
        raise InvalidMessage(f"{name} must be one line of printable text")
    size = len(text.encode(errors="replace"))
    if size > most:
        raise InvalidMessage(f"{name} has {size:,} bytes, the limit is {most:,}")


NO_CARD = AgentCard()
