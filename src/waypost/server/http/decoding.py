"""Errors of decoding a request, completed with what would be valid instead.

msgspec says what is wrong and where; which fields or values there are, it does not say. Texts that
are not known here are returned as they are.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

_unknown_field = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(\$.*?)`)?").fullmatch
_invalid_enum = re.compile(r"Invalid enum value .*? - at `(\$.*?)`", re.DOTALL).fullmatch
_invalid_time = re.compile(r"Invalid RFC3339 encoded datetime(?: - at `\$.*?`)?").fullmatch
_COMPARED_MAX_CHARS = 64
_steps_of = re.compile(r"\.(\w+)|\[").finditer


def explained(problem: msgspec.ValidationError, kinds: Iterable[Any]) -> str:
    """Return the text of `problem`, met while a value of one of `kinds` was decoded."""
    text = str(problem)
    if found := _unknown_field(text):
        return text + _field_hint(found[1], sorted(_fields_at(kinds, found[2] or "$")))
    if found := _invalid_enum(text):
        values = [str(one) for one in _values_at(kinds, found[1])]
        return f"{text}; it is one of {', '.join(values)}" if values else text
    if _invalid_time(text):
        return f"{text}; write it as 2026-05-01T09:00:00Z"
    return text


def _field_hint(field: str, known: list[str]) -> str:
    is_short = len(field) <= _COMPARED_MAX_CHARS  # a comparison takes time with its length
    if is_short and (close := get_close_matches(field, known, n=1)):
        return f"; did you mean `{close[0]}`?"
    return f"; its fields are {', '.join(known)}" if known else ""


def _fields_at(kinds: Iterable[Any], path: str) -> set[str]:
    """Return the names of the fields of the structs at `path`."""
    return {
        field.encode_name
        for one in _types_at(kinds, path)
        if isinstance(one, inspect.StructType)
        for field in one.fields
    }


def _values_at(kinds: Iterable[Any], path: str) -> Iterator[Any]:
    """Yield the values that a closed set at `path` has."""
    for one in _types_at(kinds, path):
        if isinstance(one, inspect.LiteralType):
            yield from one.values
        elif isinstance(one, inspect.EnumType):
            yield from (member.value for member in one.cls)


def _types_at(kinds: Iterable[Any], path: str) -> list[inspect.Type]:
    """Return the types that a value at `path`, such as `$.budget.ttl`, may have."""
    found = [one for kind in kinds for one in _members(inspect.type_info(kind))]
    for step in _steps_of(path):
        found = [
            one for above in found for below in _below(above, step[1]) for one in _members(below)
        ]
    return found


def _below(above: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    """Yield the type of a field, or of an element if `field` is None."""
    if field is not None and isinstance(above, inspect.StructType):
        yield from (one.type for one in above.fields if one.encode_name == field)
    elif field is None and isinstance(above, inspect.ListType):
        yield above.item_type
    elif field is None and isinstance(above, inspect.DictType):
        yield above.value_type


def _members(info: inspect.Type) -> Iterable[inspect.Type]:
    if isinstance(info, inspect.Metadata):
        return _members(info.type)
    return info.types if isinstance(info, inspect.UnionType) else (info,)
