"""`cluster`: a relay on several machines, on NATS JetStream."""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, require_modules
from waypost.policy.bounds import partitions_max, replicas_max

if TYPE_CHECKING:
    from waypost.cluster.node_file import NodeFile
    from waypost.cluster.repair import PartitionRepair, Plan
    from waypost.cluster.shared_values import SharedValues
    from waypost.cluster.verification import ClusterReport
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


Monitoring = Annotated[
    list[str] | None,
    typer.Option(
        "--nats-monitoring",
        metavar="URL",
        envvar="WAYPOST_NATS_MONITORING",
        help="Monitoring address of a NATS server, to check its sync_interval; repeatable.",
        show_default="not checked",
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
    nats_monitoring: Monitoring = None,
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
    import asyncio

    from waypost.cli.rendering.console import plural
    from waypost.cluster.address import parse_cluster
    from waypost.cluster.layout import Layout, create_cluster

    address = parse_cluster(cluster)
    _check_sync(nats_monitoring)
    asyncio.run(create_cluster(address.servers, address.name, Layout(partitions, replicas)))
    typer.echo(
        f"Created {address.name}: {plural(partitions, 'partition')}, {plural(replicas, 'replica')}."
        f" Start nodes with 'waypost serve --cluster {address} --node NAME --advertise URL'."
    )


@commands.command()
def status(cluster: Address, nats_monitoring: Monitoring = None, json: JsonOption = False) -> None:
    """Show the nodes that are alive, and who owns which partition.

    The exit code is 1 if a partition has no owner, or copies of a log are behind.

    \b
    Example:
      waypost cluster status nats://n1:4222/production
    """
    _require()
    from waypost.cluster.overview import cluster_status

    _check_sync(nats_monitoring)

    async def ask(client: Any, name: str, values: "SharedValues") -> "ClusterStatus":
        from waypost.cluster.layout import layout_of

        return await cluster_status(client, name, values, layout_of(values, name).partitions)

    found = _with_cluster(cluster, ask)
    if json:
        _print_json(found)
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

        _check_partitions([partition], layout_of(values, name).partitions)
        alive = sorted(await alive_nodes(client, name))
        if node not in (*alive, "any"):
            known = ", ".join(alive) or "none"
            raise InvalidInput(f"no node {node!r:.80} is alive: there are {known}")
        await wish(values, partition, "" if node == "any" else node)
        if node == "any":
            return f"Partition {partition} stays where it is; any node may take it over."
        return f"Partition {partition} goes to {node} within seconds: see 'waypost cluster status'."

    typer.echo(_with_cluster(cluster, ask))


DataDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Data directory of a node on this machine, to compare with; repeatable.",
        show_default=False,
    ),
]


@commands.command()
def verify(cluster: Address, data_dir: DataDirs = None, json: JsonOption = False) -> None:
    """Read every log from its beginning, and compare nodes' journals with it.

    Chain, checksums, event numbers and epochs are checked. Nothing is changed,
    and nodes may be running. The exit code is 1 if anything was found.

    \b
    Examples:
      waypost cluster verify nats://n1:4222/production
      waypost cluster verify nats://n1:4222/production --data-dir /srv/waypost
    """

    async def ask(client: Any, name: str, values: "SharedValues") -> "ClusterReport":
        from waypost.cli.rendering.maintenance import segments_bar
        from waypost.cluster.layout import layout_of
        from waypost.cluster.verification import verify_cluster

        for directory in data_dir or ():
            await _node_of(directory, name, values)
        with segments_bar() as on_progress:
            return await verify_cluster(
                client, name, layout_of(values, name), data_dir or (), on_progress
            )

    found = _with_cluster(cluster, ask)
    if json:
        _print_json(found, findings=found.findings)
    else:
        from waypost.cli.rendering.cluster import print_report

        print_report(found)
    if found.findings:
        raise typer.Exit(1)


StoppedDataDir = Annotated[
    Path,
    typer.Option("--data-dir", metavar="DIR", help="Data directory of a node that is stopped."),
]
OnlyPartitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, metavar="N", help="Only this partition; repeatable."),
]
Refill = Annotated[bool, typer.Option("--refill", help="Also fill empty or deleted streams.")]
GiveUp = Annotated[
    bool, typer.Option("--give-up", help="Delete lost events instead of publishing them.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@commands.command()
def repair(  # noqa: PLR0913 - one parameter per option
    cluster: Address,
    *,
    data_dir: StoppedDataDir,
    partition: OnlyPartitions = None,
    refill: Refill = False,
    give_up: GiveUp = False,
    yes: Yes = False,
    json: JsonOption = False,
) -> None:
    """Give a log back what it lost, from the journal of a node.

    Batches that the end of a log lacks are appended again. Messages that a log
    confirmed and lost, with others in their place, are published again under the
    same ids; DIR/partitions/N/journal/set-aside has them in files that end in
    .lost, and the node does not take over partition N until they are gone.

    First it shows what it will do, and asks. Other nodes may be running. The exit
    code is 1 if something is left.

    \b
    Examples:
      waypost cluster repair nats://n1:4222/production --data-dir /srv/waypost
      waypost cluster repair nats://n1:4222/production --data-dir /srv/waypost --refill
    """
    _require()
    from waypost.cluster.repair import RepairOptions

    options = RepairOptions(refill=refill, give_up=give_up)
    confirm = _confirmation(is_given=yes, stderr=json)

    async def ask(client: Any, name: str, values: "SharedValues") -> "list[PartitionRepair] | None":
        from waypost.cluster.layout import layout_of
        from waypost.cluster.repair import Repairer, repair_all

        layout = layout_of(values, name)
        node = await _node_of(data_dir, name, values, may_adopt=refill)
        numbers = partition or range(layout.partitions)
        _check_partitions(numbers, layout.partitions)
        return await repair_all(Repairer(client, layout, data_dir, node, options), numbers, confirm)

    done = _with_cluster(cluster, ask)
    if json:
        _print_json(partitions=done or [])
    elif done:
        from waypost.cli.rendering.cluster import print_repairs

        print_repairs(done)
    if any(not one.is_done for one in done or ()):
        raise typer.Exit(1)


def _confirmation(*, is_given: bool, stderr: bool) -> "Callable[[list[Plan]], bool]":
    """Return what shows the plans of a repair, and asks unless the answer `is_given`."""
    from waypost.cli.rendering.cluster import print_plans

    def confirm(plans: "list[Plan]") -> bool:
        print_plans(plans, stderr=stderr)
        if not any(one.is_needed for one in plans):
            return any(one.blocked for one in plans)
        return is_given or typer.confirm("Do this?", default=False, err=True)

    return confirm


async def _node_of(
    directory: Path, cluster: str, values: "SharedValues", *, may_adopt: bool = False
) -> "NodeFile":
    from waypost.cluster.node_file import cluster_id, node_of

    return node_of(directory, cluster, await cluster_id(values), may_adopt=may_adopt)


def _check_partitions(numbers: Iterable[int], count: int) -> None:
    """Raise `InvalidInput` if a cluster of `count` partitions lacks one of them."""
    from waypost.policy.errors import InvalidInput

    for number in numbers:
        if number >= count:
            raise InvalidInput(f"no partition {number}: they are 0 to {count - 1}")


def _check_sync(urls: list[str] | None) -> None:
    """Raise `LogUnusable` if a server confirms messages before they are on disk."""
    import asyncio

    from waypost.cluster.streams import check_sync

    for url in ",".join(urls or ()).replace(",", " ").split():
        asyncio.run(check_sync(url))


def _print_json(struct: Any = None, **more: Any) -> None:
    import msgspec

    from waypost.cli.rendering.console import print_json

    fields = {} if struct is None else msgspec.to_builtins(struct)
    print_json({**fields, **msgspec.to_builtins(more)})


def _require() -> None:
    require_modules("'waypost cluster'", ("nats", "starlette", "uvicorn"), "cluster")


def _with_cluster(text: str, ask: Callable[[Any, str, "SharedValues"], Awaitable[T]]) -> T:
    """Return what `ask` returns for a client of the servers, the name and the shared values."""
    _require()
    import asyncio

    from waypost.cluster.address import parse_cluster
    from waypost.cluster.shared_values import SharedValues
    from waypost.cluster.streams import answered, connect, disconnect

    address = parse_cluster(text)

    async def run() -> T:
        client = await connect(address.servers)
        try:
            values = await SharedValues.open(client.jetstream(), address.name)
            try:
                with answered():
                    return await ask(client, address.name, values)
            finally:
                await values.close()
        finally:
            await disconnect(client)

    return asyncio.run(run())
