"""`waypost` and `python -m waypost`: run the command line, if its dependencies are installed."""

import os
import sys
from importlib.util import find_spec

_EXTRA_OF = {"serve": "server", "pipeline": "spark", "mcp": "mcp"}
"""The extra of each command that needs more than the command line's own dependencies."""


def main() -> None:
    """Run the command line, or print how to install it and exit with 1."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        needs = " and ".join(missing)
        extra = _EXTRA_OF.get(sys.argv[1], "cli") if len(sys.argv) > 1 else "cli"
        print(
            f"waypost: the command line needs {needs}, which is not installed:"
            f" pip install 'waypost[{extra}]'",
            file=sys.stderr,
        )
        raise SystemExit(1)
    from waypost.cli.app import app

    os.umask(0o077)  # whatever a command writes, libraries included, is for its user only
    app(prog_name="waypost")


if __name__ == "__main__":
    main()
