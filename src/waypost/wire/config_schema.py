"""The shape of `config.json` as a type, generated from settings: for schemas, not for decoding.

Every field may be left out, and has the default of the given settings. A group of settings is a
type of its own, named by its path: `ConfigQosTier1`.
"""

from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec

from waypost.policy.settings import RELIABILITY, Settings

_DOCUMENT = """A `config.json`: the settings that differ from the defaults."""
_RELIABILITY = """Limits that protect recipients from floods and failures."""


def config_type(defaults: Settings) -> type[msgspec.Struct]:
    """Return the type of a `config.json` that overrides `defaults`."""
    flat = _fields("Config", defaults)
    nested = [field for field in flat if field[0] in RELIABILITY]
    reliability = _struct("ConfigReliability", nested, _RELIABILITY)
    fields = [field for field in flat if field not in nested]
    fields.append(("reliability", reliability, reliability()))
    return _struct("Config", fields, _DOCUMENT)


def _fields(name: str, defaults: msgspec.Struct) -> list[tuple[str, Any, Any]]:
    """Return the fields of a group as in the file: name, type and default."""
    hints = get_type_hints(type(defaults), include_extras=True)
    found: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(defaults):
        kind, value = hints[field.name], getattr(defaults, field.name)
        if isinstance(value, msgspec.Struct):
            path = name + field.encode_name[0].upper() + field.encode_name[1:]
            group = _struct(path, _fields(path, value), type(value).__doc__ or "")
            kind = group | None if NoneType in get_args(kind) else group
            value = group()
        found.append((field.encode_name, kind, value))
    return found


def _struct(name: str, fields: list[tuple[str, Any, Any]], text: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name,
        fields,
        namespace={"__doc__": text},
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
