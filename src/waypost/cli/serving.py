"""A served relay as a process: its loop, its log, its signals, and what it says when ready.

Rule 1  SIGINT and SIGTERM end it in order, whenever they come: what was confirmed is on disk
        anyway, and the rest is finished or given back.
Rule 2  What keeps it from starting is one sentence, before anything is promised to anyone.
"""

import asyncio
import errno
import ipaddress
import logging
import shlex
import signal
import socket
import ssl
from pathlib import Path

import msgspec
import typer
import uvloop

from waypost.policy.errors import InvalidInput
from waypost.policy.settings import Settings
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import RelayError
from waypost.relay.inspection.snapshot import last_storage
from waypost.server.context import ServeOptions
from waypost.server.logs import configure_logs
from waypost.server.server import SERVED_SETTINGS, Listen, open_context, serve

log = logging.getLogger("waypost.server")

_BIND_ERRORS = {
    errno.EADDRINUSE: "is in use: end what listens there, or choose another with --port",
    errno.EACCES: "may not be used by you: choose one above 1023 with --port",
    errno.EADDRNOTAVAIL: "cannot be had, for this machine has no such address: check --host",
}

_END = "Ctrl-C ends it, and loses nothing."


class CannotServe(RelayError):
    """The relay cannot be served like this."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator chose."""

    data_dir: Path
    listen: Listen
    options: ServeOptions
    storage: str | None = None
    log_format: str = "auto"


def run(serving: Serving) -> None:
    """Serve until a signal says to stop. Raises `CannotServe`, `DataDirInUse` and their kin."""
    _check_certificate(serving.listen)
    configure_logs(form=serving.log_format)
    if not serving.listen.certificate and not _is_loopback(serving.listen.host):
        log.warning(
            "others on the network can read and change everything that passes: listening on %s"
            " without TLS; give --tls-cert and --tls-key",
            serving.listen.host,
        )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(serving))
        except asyncio.CancelledError:
            pass  # a signal, before there was anything to serve
    log.info("stopped")


async def _serve(serving: Serving) -> None:
    ready = False
    is_new = not DataDir(serving.data_dir).journal.is_dir()
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        """Once it is ready, the server has its own way of ending."""
        if not ready:
            task.cancel()

    def on_ready(url: str) -> None:
        nonlocal ready
        ready = True
        log.info("ready", extra={"url": url, "data_dir": str(serving.data_dir)})
        try:
            typer.echo(welcome(url, serving) if is_new else greeting(url, serving.data_dir))
        except OSError:
            pass  # nobody reads it, which is no reason not to serve

    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stop)
    settings = _settings(serving)
    async with open_context(serving.data_dir, serving.options, settings=settings) as services:
        try:
            await serve(services, serving.listen, on_ready)
        except OSError as problem:
            if ready:
                raise
            raise _cannot_listen(serving.listen, problem) from None


def welcome(url: str, serving: Serving) -> str:
    """What to do next with a relay that has just been made, to be copied word for word."""
    token = shlex.quote(str(serving.data_dir.resolve() / "operator-token"))
    payload = """'{"text": "hi"}'"""
    send = f"waypost send agent.hello {payload}"
    if not serving.options.anonymous:
        send = f"waypost keys new agent.me; {send} --sender agent.me"
    return f"""\
{greeting(url, serving.data_dir, end="")}
Operator   whoever can read {token}

Try in another terminal:
  export WAYPOST_URL={url}
  {send}
  waypost keys new agent.hello; waypost listen agent.hello --count 1

As its operator:
  export WAYPOST_OPERATOR_TOKEN_FILE={token}
  waypost stats

{_END}"""


def greeting(url: str, data_dir: Path, end: str = f"\n{_END}") -> str:
    """Where it is, for those who have been here before."""
    return f"""\
Waypost serves {data_dir.resolve()} at {url}
Dashboard  {url}/{end}"""


def _settings(serving: Serving) -> Settings:
    """Mailboxes stay files or no files, whichever the directory has, unless something is said."""
    data = DataDir(serving.data_dir)
    storage = serving.storage or (last_storage(data) if data.journal.is_dir() else "")
    known = "journal" if storage == "journal" else "maildir"
    return msgspec.structs.replace(SERVED_SETTINGS, storage=known)


def _cannot_listen(listen: Listen, problem: OSError) -> CannotServe:
    if isinstance(problem, socket.gaierror):
        return CannotServe(f"{listen.host} is no address of this machine: check --host")
    words = _BIND_ERRORS.get(problem.errno or 0, f"cannot be used: {problem.strerror}")
    return CannotServe(f"port {listen.port} of {listen.host} {words}")


def _check_certificate(listen: Listen) -> None:
    """Better now than with the first connection."""
    if listen.certificate is None or listen.key is None:
        return
    for file in (listen.certificate, listen.key):
        try:
            file.read_bytes()
        except OSError as problem:
            raise CannotServe(f"cannot read {file}: {problem.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(listen.certificate, listen.key, password=_no_password)
    except ssl.SSLError as problem:
        raise CannotServe(
            f"{listen.certificate} and {listen.key} are no certificate with its private key, in"
            f" PEM: {problem.reason or problem}"
        ) from None


def _no_password() -> str:
    raise InvalidInput("the private key is encrypted: give one that needs no password")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
