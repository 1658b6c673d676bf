"""`webhooks`: have a served relay post notices while an agent is not connected."""

from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, with_relay_options

if TYPE_CHECKING:
    from waypost.client.webhooks import OwnWebhook

commands = CommandGroup(help="Have a served relay post notices while an agent is not connected.")

Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The agent, for example agent.web.")
]


@commands.command("set")
@with_relay_options
def set_(
    choice: RelayChoice,
    subject: Subject,
    webhook_url: Annotated[
        str, typer.Argument(metavar="WEBHOOK_URL", help="Where the relay posts notices.")
    ],
    with_messages: Annotated[
        bool, typer.Option("--with-messages", help="Put the waiting messages into notices.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Set the webhook of an agent, and print its new secret, which is shown only here.

    While messages wait for the agent and it is not connected, the relay posts a
    signed notice to the URL (Standard Webhooks). Messages stay in the mailbox
    until they are acknowledged. The operator has to allow the host:
    webhooks.allowedHosts in config.json.

    \b
    Examples:
      waypost webhooks set agent.web https://hooks.example.com/wake
      waypost webhooks set agent.web https://hooks.example.com/wake --with-messages
    """
    from waypost.cli.rendering import console
    from waypost.wire.printable import printable

    done = _open(choice, subject).set(webhook_url, "messages" if with_messages else "notice")
    if json:
        console.print_json(done)
        return
    console.console().print(printable(f"{subject}: notices go to {done.url}"), soft_wrap=True)
    console.console().print(f"secret: {printable(done.secret)}", soft_wrap=True)
    console.note("keep the secret: it is not shown again, and it verifies that notices are genuine")


@commands.command()
@with_relay_options
def show(choice: RelayChoice, subject: Subject, json: JsonOption = False) -> None:
    """Show the webhook of an agent, and the outcome of the last notice.

    \b
    Example:
      waypost webhooks show agent.web
    """
    from waypost.cli.rendering import console, maintenance

    found = _open(choice, subject).show()
    if json:
        console.print_json(found)
    else:
        maintenance.show_webhook(found)


@commands.command("test")
@with_relay_options
def try_now(choice: RelayChoice, subject: Subject, json: JsonOption = False) -> None:
    """Have the relay post a notice now that announces nothing; exits with 1 if it fails.

    \b
    Example:
      waypost webhooks test agent.web
    """
    from waypost.cli.rendering import console
    from waypost.wire.printable import printable

    done = _open(choice, subject).test()
    if json:
        console.print_json(done)
    elif not done.problem:
        console.console().print(f"{subject}: the notice was accepted ({done.status}).")
    if done.problem:
        console.note(printable(f"the notice was not accepted: {done.problem}"))
        raise typer.Exit(1)


@commands.command()
@with_relay_options
def remove(choice: RelayChoice, subject: Subject, json: JsonOption = False) -> None:
    """Remove the webhook of an agent. Its messages stay where they are.

    \b
    Example:
      waypost webhooks remove agent.web
    """
    from waypost.cli.rendering import console
    from waypost.wire.printable import printable

    done = _open(choice, subject).remove()
    if json:
        console.print_json(done)
    else:
        text = printable(f"{subject}: no more notices to {done.url}")
        console.console().print(text, soft_wrap=True)


def _open(choice: RelayChoice, subject: str) -> "OwnWebhook":
    from waypost.cli.backend import open_webhook

    return open_webhook(choice, subject)
