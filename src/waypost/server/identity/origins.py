"""Which relay an agent meant, judged by the Host header of its request.

Agents sign `host:port` in lower case. A Host header may leave the port out when it is the one
its scheme implies; behind a proxy the scheme is not known here, so both 80 and 443 are possible.
"""

import re

_is_host = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]/@]+)(?::([0-9]{1,5}))?").fullmatch
_IMPLIED_PORTS = ("80", "443")


def possible_origins(host: str) -> list[str]:
    """The origins, as agents sign them, that the Host header `host` may stand for; maybe none."""
    found = _is_host(host.strip().lower())
    if found is None:
        return []
    name, port = found.groups()
    return [f"{name}:{one}" for one in ((port,) if port else _IMPLIED_PORTS)]
