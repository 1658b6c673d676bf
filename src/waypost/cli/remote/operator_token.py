"""The operator's token: where it is read from, and where it may be sent.

Rule 1  It is sent to the relay it belongs to. The address of the relay that first accepted it is
        remembered in `~/.config/waypost/operator-relays.json`; another address is an error.
Rule 2  It is sent over TLS, or to this machine.

All loopback addresses are one: a program that can listen on one port here can listen on any.
The file holds hashes of tokens, not tokens.
"""

import hashlib
import os
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from waypost.cli.options import RelayChoice
from waypost.files import read_file, read_secret
from waypost.policy.errors import WaypostError
from waypost.policy.names import is_loopback

THIS_MACHINE = "this machine"
_RELAYS_MAX_BYTES = 1024 * 1024


class CredentialMissing(WaypostError):
    """No keys or token were given for a command that needs them."""


class TokenWithheld(WaypostError):
    """The operator's token was not sent, because it might reach someone else."""


class OperatorToken:
    """The token named by options and environment, for the relay at `url`."""

    def __init__(self, choice: RelayChoice, url: str) -> None:
        self._choice = choice
        self._url = url
        self._place = _place(url)

    def read(self) -> str | None:
        """Return the token, if one is given. Raises `CredentialMissing` for a bad file."""
        file = self._choice.operator_token_file
        if file is None:
            return os.environ.get("WAYPOST_OPERATOR_TOKEN", "").strip() or None
        try:
            token = read_secret(file).decode("ascii").strip()
        except OSError as problem:
            raise CredentialMissing(
                f"cannot read the operator's token in {file}: {problem.strerror};"
                " give the file operator-token of the relay's data directory"
            ) from None
        except UnicodeDecodeError:
            token = ""
        if not token or len(token.split()) != 1:
            raise CredentialMissing(
                f"{file} holds no token: expected the file operator-token of the relay's data"
                " directory"
            )
        return token

    def for_relay(self) -> str | None:
        """Return the token if it may be sent to the relay. Raises `TokenWithheld` otherwise."""
        token = self.read()
        if token is None:
            return None
        plain = not self._url.startswith("https:") and self._place != THIS_MACHINE
        if plain and not self._choice.allow_plain_http:
            raise TokenWithheld(
                f"the operator's token was not sent to {self._url}: without TLS everyone on the way"
                " can read it; use https://, or --allow-plain-http on a network you trust"
            )
        known = _read_places().get(_hash(token), [])
        if known and self._place not in known and not self._choice.new_address:
            raise TokenWithheld(
                f"the operator's token was not sent to {self._url}: it belongs to the relay at"
                f" {' or '.join(known)}; if that relay has a new address, add --new-address"
            )
        return token

    def remember(self, token: str) -> None:
        """Remember that the relay has accepted `token`."""
        places = _read_places()
        known = places.setdefault(_hash(token), [])
        if self._place not in known:
            known.append(self._place)
            _write_places(places)


def _place(url: str) -> str:
    """Return `host:port` of a relay's URL; loopback addresses are all `THIS_MACHINE`."""
    parts = urlsplit(url)
    return THIS_MACHINE if is_loopback(parts.hostname or "") else parts.netloc


def _hash(token: str) -> str:
    return hashlib.sha256(b"waypost-operator-token\n" + token.encode()).hexdigest()[:32]


def _file() -> Path:
    return Path.home() / ".config" / "waypost" / "operator-relays.json"


def _read_places() -> dict[str, list[str]]:
    try:
        return msgspec.json.decode(read_file(_file(), _RELAYS_MAX_BYTES), type=dict[str, list[str]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as problem:
        raise TokenWithheld(
            f"cannot tell which relay the operator's token belongs to: {_file()}: {problem};"
            " mend or delete that file"
        ) from None


def _write_places(places: dict[str, list[str]]) -> None:
    """Write the file. Without a writable home directory there is no memory of relays."""
    file = _file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(msgspec.json.format(msgspec.json.encode(places)) + b"\n")
        new.replace(file)
    except OSError:
        return
