"""`cluster`: a relay on several machines, on NATS JetStream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, require_modules
from waypost.cli.rendering.console import print_json
from waypost.policy.bounds import partitions_max, replicas_max

if TYPE_CHECKING:
    from waypost.cluster.shared_values import SharedValues
    from waypost.wire.cluster_bodies import ClusterStatus

T = TypeVar("T")

commands = CommandGroup(
    help="Create and look after a relay that runs on several machines, on NATS JetStream."
)

Address = Annotated[
    str,
    typer.Argument(
        metavar="CLUSTER",
        envvar="WAYPOST_CLUSTER",
        help="NATS servers and name: nats://HOST:4222,HOST:4222/NAME.",
    ),
]


@commands.command()
def create(
    cluster: Address,
    partitions: Annotated[
        int,
        typer.Option(min=1, max=partitions_max, metavar="N", help="Partitions; fixed for ever."),
    ] = 16,
    replicas: Annotated[
        int,
        typer.Option(min=1, max=replicas_max, metavar="N", help="Copies of each log."),
    ] = 3,
) -> None:
    """Create a cluster: the replicated logs of its partitions.

    A subject belongs to a partition by its first two tokens, and the number of
    partitions cannot change later: take some times as many as the machines you
    expect. Three replicas survive the loss of one NATS server, five of two.

    \b
    Example:
      waypost cluster create nats://n1:4222,n2:4222,n3:4222/production
      waypost serve --cluster nats://n1:4222,n2:4222,n3:4222/production \\
          --node relay-1 --advertise https://relay-1.example:7171
    """
    _require()
    from waypost.cluster.address import parse_cluster
    from waypost.cluster.layout import Layout, create_cluster

    address = parse_cluster(cluster)
    asyncio.run(create_cluster(address.servers, address.name, Layout(partitions, replicas)))
    typer.echo(
        f"Created {address.name}: {partitions} partitions, {replicas} replicas. Start nodes with"
        f" 'waypost serve --cluster {cluster} --node NAME --advertise URL'."
    )


@commands.command()
def status(cluster: Address, json: JsonOption = False) -> None:
    """Show the nodes that are alive, and who owns which partition.

    The exit code is 1 if a partition has no owner, or copies of a log are behind.

    \b
    Example:
      waypost cluster status nats://n1:4222/production
    """
    from waypost.cluster.overview import cluster_status

    async def ask(client: Any, name: str, values: "SharedValues") -> "ClusterStatus":
        from waypost.cluster.layout import layout_of

        return await cluster_status(client, name, values, layout_of(values, name).partitions)

    found = _with_cluster(cluster, ask)
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        from waypost.cli.rendering.maintenance import print_cluster

        print_cluster(found)
    if not found.is_well:
        raise typer.Exit(1)


@commands.command()
def move(
    cluster: Address,
    partition: Annotated[int, typer.Argument(min=0, metavar="PARTITION")],
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node that is alive, or 'any'.")],
) -> None:
    """Have another node own a partition; agents follow by themselves.

    \b
    Example:
      waypost cluster move nats://n1:4222/production 3 relay-2
    """

    async def ask(client: Any, name: str, values: "SharedValues") -> str:
        from waypost.cluster.announcements import alive_nodes
        from waypost.cluster.layout import layout_of
        from waypost.cluster.owners import move as wish
        from waypost.policy.errors import InvalidInput

        last = layout_of(values, name).partitions - 1
        if partition > last:
            raise InvalidInput(f"no partition {partition}: they are 0 to {last}")
        alive = sorted(await alive_nodes(client, name))
        if node not in (*alive, "any"):
            known = ", ".join(alive) or "none"
            raise InvalidInput(f"no node {node!r:.80} is alive: there are {known}")
        await wish(values, partition, "" if node == "any" else node)
        if node == "any":
            return f"Partition {partition} stays where it is; any node may take it over."
        return f"Partition {partition} goes to {node} within seconds: see 'waypost cluster status'."

    typer.echo(_with_cluster(cluster, ask))


def _require() -> None:
    require_modules("'waypost cluster'", ("nats", "starlette", "uvicorn"), "server,cluster")


def _with_cluster(text: str, ask: Callable[[Any, str, "SharedValues"], Awaitable[T]]) -> T:
    """Return what `ask` returns for a client of the servers, the name and the shared values."""
    _require()
    from waypost.cluster.address import parse_cluster
    from waypost.cluster.shared_values import SharedValues
    from waypost.cluster.streams import connect

    address = parse_cluster(text)

    async def run() -> T:
        client = await connect(address.servers)
        try:
            values = await SharedValues.open(client.jetstream(), address.name)
            try:
                return await ask(client, address.name, values)
            finally:
                await values.close()
        finally:
            await client.close()

    return asyncio.run(run())
