"""The only place that makes markup: whatever is not made here is text, and escaped."""

import html

from waypost.pipeline.reports.formatting import printable

# SVG elements that hold nothing: closing them at once saves a third of a drawing.
_HOLLOW = frozenset({"rect", "path", "line", "circle", "use"})


class Markup(str):
    """Markup that `tag` made, or that comes with this package."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """`text` to be read, with all that a browser would obey made harmless."""
    return text if isinstance(text, Markup) else Markup(html.escape(printable(text), quote=True))


def joined(*pieces: str) -> Markup:
    """Pieces after each other; those that are not markup are escaped."""
    return Markup("".join(map(escaped, pieces)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. `class_` is `class`, `stroke_width` is `stroke-width`; None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _HOLLOW and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def coordinate(value: float) -> str:
    """A length in a drawing, to a tenth of a pixel."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else coordinate(value)
