"""`waypost` and `python -m waypost`: the command line, if what it needs is installed."""

import sys
from importlib.util import find_spec

_EXTRA_OF = {"serve": "server", "pipeline": "spark", "mcp": "mcp"}
"""What a verb needs beyond the command line, and brings that along."""


def main() -> None:
    """Run the command line; says how to install it where it is missing, and exits with 1."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        needs = " and ".join(missing)
        extra = _EXTRA_OF.get(sys.argv[1], "cli") if len(sys.argv) > 1 else "cli"
        print(
            f"waypost: the command line needs {needs}, which this installation leaves out:"
            f" pip install 'waypost[{extra}]'",
            file=sys.stderr,
        )
        raise SystemExit(1)
    from waypost.cli.app import app

    app(prog_name="waypost")


if __name__ == "__main__":
    main()
