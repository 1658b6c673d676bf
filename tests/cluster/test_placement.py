"""Where a node sends the agents of a partition that it does not own."""

from pathlib import Path
from typing import cast

import msgspec
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from waypost.cluster.layout import Layout
from waypost.cluster.node import Node, NodeOptions
from waypost.cluster.node_file import NodeFile
from waypost.cluster.owners import OWNER_PREFIX, Owner
from waypost.cluster.shared_values import SharedValue, SharedValues
from waypost.policy.settings import Settings
from waypost.server.context import ServeOptions
from waypost.server.identity.authenticator import Identities

URL = "http://127.0.0.1:7171"


def node_with(values: SharedValues) -> Node:
    """Return a node that has no connection."""
    options = NodeOptions(
        servers=(),
        cluster="tests",
        name="r0",
        address="http://127.0.0.1:7170",
        data_dir=Path("unused"),
        serve=ServeOptions(),
        settings=Settings(),
    )
    claim = NodeFile(cluster="tests", cluster_id="1", node="r0", instance="1")
    unused = cast("Client", None), cast("Identities", None)
    return Node(options, unused[0], Layout(1, 1), values, unused[1], claim)


async def test_agents_are_not_sent_to_an_owner_that_is_not_alive_any_more() -> None:
    values = SharedValues(cast("JetStreamContext", None), cast("KeyValue", None), "unused")
    node = node_with(values)
    values._learn(f"{OWNER_PREFIX}0", SharedValue(msgspec.json.encode(Owner("r1", URL, 1)), 1))
    node.alive = {"r0": node.options.address, "r1": URL}
    assert node.address(0) == URL
    node.alive = {"r0": node.options.address}
    assert node.address(0) == ""
