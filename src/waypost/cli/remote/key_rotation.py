"""The rotation of an agent's keys: at the relay, and in its key file.

Failures and answers:
  crash before the relay agreed   the old keys are valid and in their file; the next rotation goes
                                  on with the new keys, which are in FILE.new
  crash afterwards                so it does: the relay answers the same rotation again
  the relay rejects it            new keys of this rotation are removed, and the old ones stay
"""

from contextlib import closing
from pathlib import Path

from waypost.cli.options import DEFAULT_URL, RelayChoice
from waypost.cli.remote.credentials import Credentials, keys_missing
from waypost.client.http import HttpClient, RemoteError
from waypost.client.identity import Identity

_KEY_CHARS = 8
"""Characters of the old public key in the name of the file that keeps it."""


def rotate_keys(choice: RelayChoice, subject: str | None) -> tuple[Identity, Path]:
    """Replace the keys of an agent; return the new ones and the file that keeps the old ones.

    Raises `CredentialMissing`, `KeyFileError`, `RemoteError` or `InvalidInput`.
    """
    old = Credentials(choice).identity(subject)
    if old is None or old.file is None:
        raise keys_missing(subject)
    file, unfinished = old.file, old.file.with_name(f"{old.file.name}.new")
    kept = file.with_name(f"{file.name}.old-{old.public_key[:_KEY_CHARS]}")
    goes_on = unfinished.exists()
    new = Identity.load(unfinished) if goes_on else old.successor()
    if not goes_on:
        new.save(unfinished)
    try:
        with closing(HttpClient(choice.url or DEFAULT_URL)) as api:
            api.rotate(old, new)
    except RemoteError as problem:
        if problem.status and not goes_on:  # the relay has answered: these keys own nothing
            unfinished.unlink()
        raise
    if not kept.exists():
        old.save(kept)
    new.save(file, overwrite=True)
    unfinished.unlink()
    return new, kept
