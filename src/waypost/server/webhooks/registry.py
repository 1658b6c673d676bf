"""The webhooks of agents, in `<data>/webhooks.json`, accessible to the owner only.

Rule 1  A webhook belongs to the key that set it: under another key, the name has none.
Rule 2  A change is valid once it is on disk, and no call returns earlier.

Failures and answers:
  crash in a write   the file is replaced as a whole: it is the old one or the new one
  disk full          the change is rejected, the file unchanged
  damage             the relay starts without webhooks, and keeps the file as webhooks.json.damaged:
                     agents have to set them again. No message depends on them
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from waypost.files import read_file
from waypost.policy.bounds import webhook_url_max_chars, webhooks_max
from waypost.relay.data_dir import replace_file, sync_directory
from waypost.server.webhooks.errors import TooManyWebhooks, WebhookNotSaved
from waypost.wire.webhook_bodies import WebhookContent

log = logging.getLogger("waypost.server")

_FILE_MAX_BYTES = 2 * webhooks_max * webhook_url_max_chars


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """`subject` gets notices at `url`, set by the owner of `public_key` at `set_at_ms`."""

    subject: str
    public_key: str
    url: str
    content: WebhookContent
    secret: str
    set_at_ms: int


class Registry:
    """The webhooks of one relay. `key_of` returns the key that a subject belongs to."""

    def __init__(self, path: Path, key_of: Callable[[str], str | None]) -> None:
        self._path = path
        self._key_of = key_of
        self._webhooks = {one.subject: one for one in _read(path)}
        self._changing = asyncio.Lock()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the subjects with a webhook."""
        return iter([one for one in self._webhooks if self.get(one) is not None])

    def get(self, subject: str) -> Webhook | None:
        """Return the webhook of `subject` that its present owner has set, or None."""
        found = self._webhooks.get(subject)
        if found is None or found.public_key != self._key_of(subject):
            return None
        return found

    async def set(self, webhook: Webhook) -> None:
        """Keep a webhook, instead of an earlier one.

        Raises `TooManyWebhooks` or `WebhookNotSaved`.
        """
        async with self._changing:
            kept = {one: self._webhooks[one] for one in self}
            if len(kept) >= webhooks_max and webhook.subject not in kept:
                raise TooManyWebhooks(
                    f"too many webhooks: this relay keeps at most {webhooks_max:,}"
                )
            await self._save({**kept, webhook.subject: webhook})

    async def remove(self, subject: str) -> bool:
        """Remove a webhook, whichever key has set it; return whether there was one.

        Raises `WebhookNotSaved`.
        """
        async with self._changing:
            if subject not in self._webhooks:
                return False
            await self._save({one: kept for one, kept in self._webhooks.items() if one != subject})
            return True

    async def move(self, subject: str, old_key: str, new_key: str) -> None:
        """Leave the webhook of one key to another key of its owner. Raises `WebhookNotSaved`."""
        async with self._changing:
            known = self._webhooks.get(subject)
            if known is not None and known.public_key == old_key:
                moved = msgspec.structs.replace(known, public_key=new_key)
                await self._save({**self._webhooks, subject: moved})

    async def _save(self, webhooks: dict[str, Webhook]) -> None:
        content = msgspec.json.encode(list(webhooks.values()))
        try:
            await asyncio.to_thread(_write, self._path, content)
        except OSError as problem:
            raise WebhookNotSaved(
                f"the webhook cannot be saved: {self._path} could not be written"
                f" ({problem.strerror})"
            ) from None
        self._webhooks = webhooks


def _write(path: Path, content: bytes) -> None:
    replace_file(path, content)
    sync_directory(path.parent)


def _read(path: Path) -> list[Webhook]:
    try:
        content = read_file(path, _FILE_MAX_BYTES)
        return msgspec.json.decode(content, type=list[Webhook])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        kept = path.with_name(f"{path.name}.damaged")
        log.error(
            "%s is not readable (%s): it is kept as %s, and agents have to set their webhooks"
            " again",
            path,
            problem,
            kept,
        )
        os.replace(path, kept)
        return []
