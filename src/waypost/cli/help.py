"""Typer classes whose help shows `--json`, not `--json <bool>`, and arguments in upper case."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        for parameter in self.params:
            _show_plainly(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return _show_plainly(super().get_help_option(ctx))


class Group(TyperGroup):
    """A command with subcommands."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        for parameter in self.params:
            _show_plainly(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return _show_plainly(super().get_help_option(ctx))


class CommandGroup(typer.Typer):
    """A group whose commands are of the class `Command`."""

    def __init__(self, *, cls: type[Group] = Group, **named: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, rich_markup_mode="rich", **named)

    def command(self, name: str | None = None, **named: Any) -> Callable[[F], F]:
        """Return a decorator that adds a command."""
        return super().command(name, cls=Command, **named)


def _show_plainly(parameter: Any) -> Any:
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif parameter is not None and parameter.param_type_name == "argument":
        parameter.metavar = parameter.metavar or parameter.name.upper()
    return parameter
