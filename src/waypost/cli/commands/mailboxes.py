"""`endpoints` and `stats`: who is there, and how it goes."""

from waypost.cli.options import JsonOption, Where, on_a_relay


@on_a_relay
def endpoints(where: Where, json: JsonOption = False) -> None:
    """List the endpoints and what lies in their mailboxes.

    Works while a relay is running. A served relay tells its operator.

    \b
    Example:
      waypost endpoints --data-dir ./waypost-data
    """
    from waypost.cli.rendering import console, mailboxes

    found = where.target().endpoints()
    if json:
        console.print_json({"endpoints": found})
    else:
        mailboxes.show_endpoints(found)


@on_a_relay
def stats(where: Where, json: JsonOption = False) -> None:
    """Show numbers and problems at a glance.

    How many messages wait, are leased or dead; how full each mailbox is and who
    fills it; what happened lately, counted over the newest 64 MiB of the
    journal; and whether config.json or access-rules.json have to be mended.
    Works while a relay is running. A served relay tells its operator, and
    counts since it was started.

    \b
    Example:
      waypost stats --json | jq .by_status
    """
    from waypost.cli.rendering import console, mailboxes

    found = where.target().stats()
    if json:
        console.print_json(found)
    else:
        mailboxes.show_stats(found)
