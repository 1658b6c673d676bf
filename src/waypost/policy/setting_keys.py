"""Keys of `config.json`: finds one that does not exist, and the key that was probably meant.

An unknown key makes the whole file invalid: a misspelled limit would otherwise be no limit.
"""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

import msgspec

KeyTree = dict[str, "KeyTree | None"]
"""Keys by name; the keys below one, or None if its value is not an object with fixed keys."""

_SHOWN_MAX_CHARS = 100
_SIMILAR_AT = 0.7


def keys_of(struct: type[msgspec.Struct]) -> KeyTree:
    """Return the keys of a struct, and of the structs in it."""
    return _keys_of(msgspec.inspect.type_info(struct)) or {}


def find_unknown_key(document: Mapping[str, Any], known: KeyTree) -> str:
    """Describe the first key of `document` that is not in `known`; return "" if there is none."""
    found = _first_unknown(document, known, ())
    if found is None:
        return ""
    path, siblings = found
    meant = " or ".join(repr(".".join(one)) for one in _meant(path, siblings, known))
    suggestion = f"; did you mean {meant}?" if meant else ""
    return f"unknown key {'.'.join(path)!r}{suggestion}"


def _keys_of(info: msgspec.inspect.Type) -> KeyTree | None:
    if isinstance(info, msgspec.inspect.UnionType):
        trees = [_keys_of(one) for one in info.types]
        return next((tree for tree in trees if tree is not None), None)
    if isinstance(info, msgspec.inspect.StructType):
        return {field.encode_name: _keys_of(field.type) for field in info.fields}
    return None


def _first_unknown(
    document: Mapping[str, Any], known: KeyTree, above: tuple[str, ...]
) -> tuple[tuple[str, ...], KeyTree] | None:
    """Return the path of an unknown key, and the keys that exist beside it."""
    for key, value in document.items():
        if key not in known:
            shown = key if len(key) <= _SHOWN_MAX_CHARS else key[:_SHOWN_MAX_CHARS] + "…"
            return (*above, shown), known
        below = known[key]
        if below is not None and isinstance(value, dict):
            found = _first_unknown(value, below, (*above, key))
            if found is not None:
                return found
    return None


def _meant(path: tuple[str, ...], siblings: KeyTree, known: KeyTree) -> list[tuple[str, ...]]:
    """Return the path of the most similar key beside it, or of each equal key elsewhere."""
    *above, key = path
    wanted = _plain(key)
    similar = {one: SequenceMatcher(None, wanted, _plain(one)).ratio() for one in siblings}
    best = max(similar, key=lambda one: similar[one], default="")
    if best and similar[best] >= _SIMILAR_AT:
        return [(*above, best)]
    return [one for one in _paths(known) if _plain(one[-1]) == wanted]


def _paths(known: KeyTree) -> Iterator[tuple[str, ...]]:
    for key, below in known.items():
        yield (key,)
        for rest in _paths(below or {}):
            yield (key, *rest)


def _plain(key: str) -> str:
    """Return a key without the differences between camelCase and snake_case."""
    return key.replace("_", "").replace("-", "").lower()
