"""The version of the installed package."""

from functools import cache


@cache
def installed_version() -> str:
    """Return the version of the installed package, "0" if it is not installed; looked up once."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("waypost")
    except PackageNotFoundError:
        return "0"
