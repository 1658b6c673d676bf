"""Joins a Spark server of this machine: its session, and whether it answers."""

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from waypost.pipeline.files import LOCAL_PATHS

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import ServerState

_REMOTE_MODE = "SPARK_CONNECT_MODE_ENABLED"
_ANSWER_TIMEOUT_S = 10


@contextlib.contextmanager
def join(server: "ServerState", environment: MutableMapping[str, str]) -> Iterator[SparkSession]:
    """Open a session on a server of this machine, which has the settings of a local session."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    environment[_REMOTE_MODE] = "1"  # by this, functions of PySpark tell which session they serve
    try:
        session = RemoteSession.builder.channelBuilder(_channel(server)).create()
        session.conf.set(LOCAL_PATHS, str(server.local_paths).lower())
        yield session  # type: ignore[misc]
    finally:
        environment.pop(_REMOTE_MODE, None)


def is_answering(server: "ServerState") -> bool:
    """Return whether a Spark Connect server listens there."""
    import grpc  # type: ignore[import-untyped]

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
