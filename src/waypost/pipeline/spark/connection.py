"""Joins a Spark server of this machine: its session, and whether it answers."""

import contextlib
import socket
import warnings
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from waypost.pipeline.errors import SparkUnavailable
from waypost.pipeline.files import LOCAL_PATHS

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import ServerState

_REMOTE_MODE = "SPARK_CONNECT_MODE_ENABLED"
_ANSWER_TIMEOUT_S = 10
# A server on loopback that is unavailable for five seconds has ended. PySpark would try for ten
# minutes, because networks recover.
_RETRIES_MAX = 5
_BACKOFF_MAX_MS = 2000


@contextlib.contextmanager
def join(server: "ServerState", environment: MutableMapping[str, str]) -> Iterator[SparkSession]:
    """Open a session on a server of this machine, which has the settings of a local session.

    Raises `SparkUnavailable` if the server ends before the block.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    environment[_REMOTE_MODE] = "1"  # by this, functions of PySpark tell which session they serve
    try:
        session = RemoteSession.builder.channelBuilder(_channel(server)).create()
        policy = DefaultPolicy(max_retries=_RETRIES_MAX, max_backoff=_BACKOFF_MAX_MS)
        session.client.set_retry_policies([policy])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
            session.conf.set(LOCAL_PATHS, str(server.local_paths).lower())
            yield session  # type: ignore[misc]
    except Exception as problem:
        if _is_of_spark(problem) and not _is_listening(server):
            raise SparkUnavailable(
                "the Spark server has ended: run this again, or with --no-server"
            ) from problem
        raise
    finally:
        environment.pop(_REMOTE_MODE, None)


def _is_of_spark(problem: BaseException | None) -> bool:
    """Return whether Spark or the connection to it failed, or what failed because of that."""
    import grpc  # type: ignore[import-untyped]

    while problem is not None and not isinstance(problem, PySparkException | grpc.RpcError):
        problem = problem.__cause__ or problem.__context__
    return problem is not None


def _is_listening(server: "ServerState") -> bool:
    """Return whether a process has the port of a server. Sends it nothing."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), _ANSWER_TIMEOUT_S):
            return True
    except OSError:
        return False


def is_answering(server: "ServerState") -> bool:
    """Return whether a Spark Connect server listens there."""
    import grpc

    channel = _channel(server).toChannel()
    try:
        grpc.channel_ready_future(channel).result(_ANSWER_TIMEOUT_S)
    except grpc.FutureTimeoutError:
        return False
    finally:
        channel.close()
    return True


def _channel(server: "ServerState") -> Any:
    """Return how to reach a server: by its address, as the name "localhost" may have others."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    class Loopback(DefaultChannelBuilder):
        """A channel that is local, as the server's token demands, whatever the name means."""

        @property
        def endpoint(self) -> str:
            """Return the address in the words of gRPC."""
            return f"ipv4:127.0.0.1:{server.port}"

    return Loopback(f"sc://localhost:{server.port}/;token={server.token}")
