"""Typer classes whose help shows `--json`, not `--json <bool>`, and arguments in upper case.

Public keys and numbers may start with a dash: a command takes them for values, not for options.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])

VALUE_WITH_A_DASH = re.compile(r"-[\w-]{42}|-\d[\d.eE+-]*")


class Command(TyperCommand):
    """A command."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        for parameter in self.params:
            _show_plainly(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return _show_plainly(super().get_help_option(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command."""
        return super().parse_args(ctx, self._mark_values(args))

    def _mark_values(self, arguments: list[str]) -> list[str]:
        """Move arguments with a dash that are no options behind `--`, which ends the options."""
        if "--" in arguments:
            return arguments
        takes_value = {name for one in self.params if _takes_value(one) for name in one.opts}
        pairs = zip(["", *arguments], arguments, strict=False)
        values = {
            at
            for at, (before, argument) in enumerate(pairs)
            if VALUE_WITH_A_DASH.fullmatch(argument) and before not in takes_value
        }
        if not values:
            return arguments
        rest = [argument for at, argument in enumerate(arguments) if at not in values]
        return [*rest, "--", *(arguments[at] for at in sorted(values))]


class Group(TyperGroup):
    """A command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options, also those that Typer has added."""
        return [_show_plainly(parameter) for parameter in super().get_params(ctx)]

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`."""
        return _show_plainly(super().get_help_option(ctx))


class CommandGroup(typer.Typer):
    """A group whose commands are of the class `Command`."""

    def __init__(self, *, cls: type[Group] = Group, **named: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, rich_markup_mode="rich", **named)

    def command(self, name: str | None = None, **named: Any) -> Callable[[F], F]:
        """Return a decorator that adds a command."""
        return super().command(name, **{"cls": Command, **named})


def _takes_value(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not parameter.is_flag


def _show_plainly(parameter: Any) -> Any:
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif parameter is not None and parameter.param_type_name == "argument":
        parameter.metavar = parameter.metavar or parameter.name.upper()
    return parameter
