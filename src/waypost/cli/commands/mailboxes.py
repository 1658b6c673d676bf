"""`endpoints` and `stats`: who is there, and how it goes."""

from waypost.cli.options import DEFAULT_DATA_DIR, DataDirOption, JsonOption, directory


def endpoints(data_dir: DataDirOption = DEFAULT_DATA_DIR, json: JsonOption = False) -> None:
    """List the endpoints and what lies in their mailboxes.

    Works while a relay is running.

    \b
    Example:
      waypost endpoints --data-dir ./waypost-data
    """
    from waypost.cli.rendering import console, mailboxes

    found = directory(data_dir).endpoints()
    if json:
        console.print_json({"endpoints": found})
    else:
        mailboxes.show_endpoints(found)


def stats(data_dir: DataDirOption = DEFAULT_DATA_DIR, json: JsonOption = False) -> None:
    """Show numbers and problems at a glance.

    How many messages wait, are leased or dead; how full each mailbox is and who
    fills it; what happened lately, counted over the newest 64 MiB of the
    journal; and whether config.json or access-rules.json have to be mended.
    Works while a relay is running.

    \b
    Example:
      waypost stats --json | jq .by_status
    """
    from waypost.cli.overview import stats_of
    from waypost.cli.rendering import console, mailboxes

    found = stats_of(directory(data_dir).look())
    if json:
        console.print_json(found)
    else:
        mailboxes.show_stats(found)
