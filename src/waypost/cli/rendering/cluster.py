"""Text about the logs of a cluster: what was verified, and what a repair does."""

from typing import TYPE_CHECKING

from waypost.cli.rendering.console import console, plural, table
from waypost.wire.printable import printable

if TYPE_CHECKING:
    from waypost.cluster.copies import CopyReport
    from waypost.cluster.repair import PartitionRepair, Plan
    from waypost.cluster.verification import ClusterReport


def print_report(report: "ClusterReport") -> None:
    """Print each partition, its copies, and every finding."""
    screen = console()
    numbers = ("Partition", "Log position", "Events", "Epoch")
    rows = table(*numbers, "Owner", "Journals", "State", numbers=numbers)
    for one in report.partitions:
        counts = (f"{one.position:,}", f"{one.events:,}", f"{one.epoch:,}")
        copies = ", ".join(_copy(copy) for copy in one.copies)
        state = plural(len(one.all_findings), "finding") if one.all_findings else "whole"
        rows.add_row(str(one.number), *counts, printable(one.owner or "–"), copies or "–", state)
    screen.print(rows)
    for one in report.partitions:
        for finding in one.all_findings:
            screen.print(f"partition {one.number}: {printable(finding)}", soft_wrap=True)
    if report.findings:
        text = "Stop a node that has what is missing, and run 'waypost cluster repair'"
        screen.print(f"{plural(report.findings, 'finding')}. {text} with its --data-dir.")
    else:
        screen.print(f"All {plural(len(report.partitions), 'partition')} whole.")


def print_plans(plans: "list[Plan]", *, stderr: bool = False) -> None:
    """Print what a repair will do."""
    screen = console(stderr=stderr)
    for plan in plans:
        for step in plan.steps:
            screen.print(f"partition {plan.number}: {step}", soft_wrap=True)
    if not any(plan.is_needed or plan.blocked for plan in plans):
        screen.print(f"Nothing to repair in {plural(len(plans), 'partition')}.")


def print_repairs(done: "list[PartitionRepair]") -> None:
    """Print what a repair did, and what is left."""
    screen = console()
    for one in done:
        if one.problem:
            text = f"not repaired: {printable(one.problem)}"
        else:
            files = plural(len(one.removed), "file")
            text = (
                f"{plural(one.appended, 'batch', 'batches')} appended,"
                f" {plural(one.stored, 'message')} published again, {files} removed"
            )
        screen.print(f"partition {one.number}: {text}", soft_wrap=True)
        for message_id, why in one.rejected.items():
            screen.print(f"  {printable(message_id)}: {printable(why)}", soft_wrap=True)
        if one.rejected:
            screen.print("  their files are kept: run this again later, or with --give-up")


def _copy(copy: "CopyReport") -> str:
    if copy.state in ("ahead", "different"):
        kind = "confirmed" if copy.confirmed else "unconfirmed"
        return f"{copy.state} ({copy.ahead:,} {kind})"
    return copy.state
