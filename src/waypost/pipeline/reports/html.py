"""Builds HTML and SVG elements. The only module that makes markup: all other text is escaped."""

import html

from waypost.wire.printable import printable

# SVG elements without content: self-closing tags save a third of a drawing.
_VOID = frozenset({"rect", "path", "line", "circle", "use"})


class Markup(str):
    """Markup made by `tag`, or part of this package."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Escape `text`, with unprintable characters shown; markup stays."""
    return text if isinstance(text, Markup) else Markup(html.escape(printable(text), quote=True))


def joined(*pieces: str) -> Markup:
    """Concatenate pieces, escaping those that are not markup."""
    return Markup("".join(map(escaped, pieces)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element. `class_` is `class`, `stroke_width` is `stroke-width`; None is omitted."""
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{attribute_text}/>")
    return Markup(f"<{name}{attribute_text}>{joined(*children)}</{name}>")


def coordinate(value: float) -> str:
    """Format a length in a drawing, to a tenth of a pixel."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else coordinate(value)
