"""The process of `waypost serve`: event loop, log, signals, and the greeting when it is ready.

Separate from `commands.serve` so that `--help` loads neither uvloop nor the server.

Rule 1  SIGINT and SIGTERM stop it in order at any time: confirmed messages are on disk, requests
        under way are finished, leased messages are released.
Rule 2  Anything that prevents the start is one sentence on stderr, before the relay is ready.
"""

import asyncio
import errno
import logging
import shlex
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import typer
import uvloop

from waypost.cluster.address import NODE_FILE, ClusterOptions
from waypost.files import read_file, read_secret
from waypost.policy.errors import InvalidInput
from waypost.policy.names import is_loopback
from waypost.policy.settings import Settings
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import RelayError
from waypost.relay.inspection.snapshot import last_storage
from waypost.server.context import SERVED_SETTINGS, ServeOptions
from waypost.server.logs import configure_logs
from waypost.server.server import Listen, open_context, serve

log = logging.getLogger("waypost.server")

_BIND_ERRORS = {
    errno.EADDRINUSE: "address already in use: stop the other server, or choose another --port",
    errno.EACCES: "permission denied: choose a port above 1023 with --port",
    errno.EADDRNOTAVAIL: "this machine has no such address: check --host",
}

_PEM_MAX_BYTES = 1024 * 1024
_COMMAND_LINE = (sys.executable, "-P", "-m", "waypost")

_STOP_HINT = "Stop with Ctrl-C; nothing is lost."


class CannotServe(RelayError):
    """The relay cannot be served with these options."""


class ServeCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `waypost serve`."""

    data_dir: Path
    listen: Listen
    options: ServeOptions
    storage: str | None = None
    cluster: ClusterOptions | None = None
    """For a node of a cluster."""
    log_format: str = "auto"


def run(command: ServeCommand) -> None:
    """Serve until a signal. Raises `CannotServe`, `DataDirInUse` and other `RelayError`s."""
    _check_certificate(command.listen)
    configure_logs(form=command.log_format)
    if not command.listen.certificate and not is_loopback(command.listen.host):
        log.warning(
            "listening on %s without TLS: traffic can be read and changed on the network; give"
            " --tls-cert and --tls-key",
            command.listen.host,
        )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve_node(command) if command.cluster else _serve(command))
        except asyncio.CancelledError:
            pass  # a signal before the relay was ready
    log.info("stopped")


class _Start:
    """The start of a server: a signal cancels it; afterwards the server handles signals itself."""

    def __init__(self, command: ServeCommand) -> None:
        self._command = command
        self._is_new = not (command.data_dir / "operator-token").exists()
        self._task = asyncio.current_task()
        self._is_ready = False
        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, self._stop)

    def _stop(self) -> None:
        if not self._is_ready and self._task is not None:
            self._task.cancel()

    def on_ready(self, url: str, public_key: str = "") -> None:
        """Greet, once requests are accepted."""
        self._is_ready = True
        data_dir = self._command.data_dir
        log.info("ready", extra={"url": url, "data_dir": str(data_dir)})
        try:
            text = greeting(url, data_dir)
            typer.echo(welcome(url, self._command, public_key) if self._is_new else text)
        except OSError:
            pass  # stdout is closed; serve nevertheless

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Turn an error of listening into one that says what to do."""
        try:
            yield
        except OSError as problem:
            if self._is_ready:
                raise
            raise _cannot_listen(self._command.listen, problem) from None


async def _serve(command: ServeCommand) -> None:
    if (command.data_dir / NODE_FILE).exists():
        raise CannotServe(
            f"{command.data_dir} belongs to a node of a cluster: give --cluster, --node and"
            " --advertise, or another --data-dir"
        )
    start, settings = _Start(command), _settings(command)
    options = msgspec.structs.replace(command.options, pipeline_command=_COMMAND_LINE)
    async with open_context(command.data_dir, options, settings=settings) as context:
        with start.listening():
            await serve(
                context, command.listen, lambda url: start.on_ready(url, context.public_key)
            )


async def _serve_node(command: ServeCommand) -> None:
    from waypost.cluster.serving import node_options, serve_node

    start = _Start(command)
    assert command.cluster is not None
    options = node_options(command.cluster, command.data_dir, command.options, command.listen)
    with start.listening():
        await serve_node(options, command.listen, start.on_ready)


def welcome(url: str, command: ServeCommand, public_key: str) -> str:
    """Return the greeting of a new relay, with commands to copy."""
    token = shlex.quote(str(command.data_dir.resolve() / "operator-token"))
    signs = "Cluster    an operator's commands name a partition: --url URL/p/0"
    if public_key:
        signs = f"Public key {public_key} (signs the journal)"
    payload = """'{"text": "hi"}'"""
    send = f"waypost send agent.hello {payload}"
    if not command.options.anonymous:
        send = f"waypost keys new agent.me; {send} --sender agent.me"
    return f"""\
{greeting(url, command.data_dir, hint="")}
Operator   {token}
{signs}

Try it in another terminal:
  export WAYPOST_URL={url}
  {send}
  waypost keys new agent.hello; waypost listen agent.hello --count 1

As the operator:
  export WAYPOST_OPERATOR_TOKEN_FILE={token}
  waypost stats

{_STOP_HINT}"""


def greeting(url: str, data_dir: Path, hint: str = f"\n{_STOP_HINT}") -> str:
    """Return the greeting of a relay that was served before."""
    return f"""\
Waypost serves {data_dir.resolve()} at {url}
Dashboard  {url}/{hint}"""


def _settings(command: ServeCommand) -> Settings:
    """Return the settings; without `--storage`, mailboxes stay as the directory has them."""
    data = DataDir(command.data_dir)
    storage = command.storage or (last_storage(data) if data.journal.is_dir() else "")
    known = "journal" if storage == "journal" else "maildir"
    return msgspec.structs.replace(SERVED_SETTINGS, storage=known)


def _cannot_listen(listen: Listen, problem: OSError) -> CannotServe:
    if isinstance(problem, socket.gaierror):
        return CannotServe(f"cannot listen on {listen.host}: unknown host; check --host")
    reason = _BIND_ERRORS.get(problem.errno or 0, problem.strerror)
    return CannotServe(f"cannot listen on {listen.host} port {listen.port}: {reason}")


def _check_certificate(listen: Listen) -> None:
    """Raise `CannotServe` for a bad certificate now, not on the first connection."""
    if listen.certificate is None or listen.key is None:
        return
    try:
        read_file(listen.certificate, _PEM_MAX_BYTES)
        read_secret(listen.key, _PEM_MAX_BYTES, group_of_root=True)
    except OSError as problem:
        raise CannotServe(f"cannot read {problem.filename}: {problem.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(listen.certificate, listen.key, password=_no_password)
    except ssl.SSLError as problem:
        raise CannotServe(
            f"{listen.certificate} and {listen.key} are not a PEM certificate and its private key:"
            f" {problem.reason or problem}"
        ) from None


def _no_password() -> str:
    raise InvalidInput("the private key is encrypted: give one without a password")
