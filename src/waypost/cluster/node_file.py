"""Whose a node's data directory is, in `<data>/node.json`: written once, checked at every start.

Rule 1  A directory belongs to one node of one cluster. Its journals are copies of that cluster's
        streams, and must not be compared with, or appended to, those of another.
Rule 2  An id distinguishes clusters; it is chosen when the first node joins. One that was created
        again under the same name is another cluster.
"""

import secrets
from pathlib import Path

import msgspec

from waypost.cluster.address import NODE_FILE
from waypost.cluster.shared_values import SharedValues
from waypost.files import read_file
from waypost.relay.data_dir import replace_file
from waypost.relay.errors import DataDirUnusable

ID_KEY = "id"
_FILE_MAX_BYTES = 4096
_ID_BYTES = 16


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """The node of a data directory. `instance` tells apart two directories of one node's name."""

    cluster: str
    cluster_id: str
    node: str
    instance: str


def read_node_file(data_dir: Path) -> NodeFile | None:
    """Return whose a directory is; None if it is of no node. Raises `DataDirUnusable`."""
    path = data_dir / NODE_FILE
    try:
        return msgspec.json.decode(read_file(path, _FILE_MAX_BYTES), type=NodeFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as problem:
        raise DataDirUnusable(
            f"{path} cannot be read ({problem}): restore it from a backup, or delete it if the"
            " directory is surely of this node"
        ) from None


def write_node_file(data_dir: Path, content: NodeFile) -> None:
    """Write whose a directory is. Raises `OSError`."""
    replace_file(data_dir / NODE_FILE, msgspec.json.encode(content))


async def cluster_id(values: SharedValues) -> str:
    """Return the id of a cluster; the first that asks chooses it."""
    chosen = await values.create_once(ID_KEY, lambda: secrets.token_hex(_ID_BYTES).encode())
    return chosen.decode(errors="replace")


def claim_of(data_dir: Path, cluster: str, id_: str, node: str) -> NodeFile:
    """Return whose a directory is; for one without a node, what to write to make it `node`'s.

    Raises `DataDirUnusable` if it is of a relay, or of another node or cluster.
    """
    found = read_node_file(data_dir)
    if found is None:
        if (data_dir / "journal").exists():
            raise DataDirUnusable(
                f"{data_dir} is the data directory of a relay on one machine: give this node one"
                " of its own with --data-dir"
            )
        instance = secrets.token_hex(_ID_BYTES)
        return NodeFile(cluster=cluster, cluster_id=id_, node=node, instance=instance)
    if (found.cluster, found.node) != (cluster, node):
        raise DataDirUnusable(
            f"{data_dir} belongs to the node {found.node!r} of the cluster {found.cluster!r}, not"
            f" to {node!r} of {cluster!r}: check --data-dir, --node and --cluster"
        )
    if found.cluster_id != id_:
        raise _earlier(data_dir, cluster)
    return found


def node_of(data_dir: Path, cluster: str, id_: str, *, may_adopt: bool = False) -> NodeFile:
    """Return the node of a directory. Raises `DataDirUnusable` unless it is one of the cluster.

    With `may_adopt`, it may be of an earlier cluster of the same name.
    """
    found = read_node_file(data_dir)
    if found is None:
        raise DataDirUnusable(
            f"{data_dir} is not the data directory of a node: it has no {NODE_FILE}"
        )
    if found.cluster != cluster:
        raise DataDirUnusable(
            f"{data_dir} belongs to the cluster {found.cluster!r}, not to {cluster!r}: check"
            " --data-dir and the name of the cluster"
        )
    if found.cluster_id != id_ and not may_adopt:
        raise _earlier(data_dir, cluster)
    return msgspec.structs.replace(found, cluster_id=id_)


def _earlier(data_dir: Path, cluster: str) -> DataDirUnusable:
    return DataDirUnusable(
        f"{data_dir} belongs to an earlier cluster {cluster!r}, which was created again since: give"
        " this node an empty --data-dir, or fill the new streams from this one with 'waypost"
        " cluster repair --refill'"
    )
