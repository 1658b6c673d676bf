"""Checks that the address which a node advertises reaches it.

Rule 1  An address that reaches another relay, or that this node rejects as not its own name, is a
        mistake: the node stops. Its agents would be sent there.
Rule 2  One that does not answer may be right all the same, if this machine cannot reach itself
        through it. That is reported, and checked again.
"""

import asyncio
import http.client
import json
import logging
import urllib.error
import urllib.request
from typing import Any

from waypost.cluster.node import Node
from waypost.relay.errors import RelayError

log = logging.getLogger("waypost.cluster")

NODE_PATH = "/v1/node"
CHECK_S = 60.0
_ANSWER_S = 5.0
_ANSWER_MAX_BYTES = 4096
_MISDIRECTED = 421


class AddressWrong(RelayError):
    """The advertised address is not that of this node."""


async def keep_checking(node: Node) -> None:
    """Check the advertised address of a node that listens, and start it unless that is wrong.

    Then check it again and again until cancelled.
    """
    try:
        await _check(node)
        node.start()
        while True:
            await asyncio.sleep(CHECK_S)
            await _check(node)
    except Exception as problem:
        if not isinstance(problem, RelayError | OSError):
            log.exception("cluster: the advertised address is not checked any more")
        node.fail(str(problem))


async def _check(node: Node) -> None:
    """Note whether the address reaches the node. Raises `AddressWrong` if it surely does not."""
    wrong, node.unreachable = await asyncio.to_thread(
        check_address, node.options.address, node.instance
    )
    if wrong:
        raise AddressWrong(wrong)
    if node.unreachable:
        log.warning("cluster: %s", node.unreachable)


def check_address(address: str, instance: str) -> tuple[str, str]:
    """Return why an address is surely wrong, and why it does not answer; "" for neither."""
    try:
        found = _ask(address)
    except urllib.error.HTTPError as problem:
        if problem.code == _MISDIRECTED:
            return (
                f"--advertise {address} is not a name of this node, which rejects requests to it:"
                f" start it with --origin {address}, too"
            ), ""
        found = {}
    except (OSError, ValueError, http.client.HTTPException) as problem:
        is_answer = isinstance(problem, http.client.BadStatusLine)
        if not is_answer or isinstance(problem, http.client.RemoteDisconnected):
            return "", (
                f"--advertise {address} cannot be reached from this machine ({problem}): agents"
                " are sent there; check the address, and that a firewall or proxy lets them through"
            )
        found = {}  # it does not speak HTTP
    if found.get("instance") != instance:
        return (
            f"--advertise {address} reaches something else than this node: agents would be sent"
            " there; advertise the URL of this node itself, not of all nodes"
        ), ""
    return "", ""


def _ask(address: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{address}{NODE_PATH}", timeout=_ANSWER_S) as answer:
        found = json.loads(answer.read(_ANSWER_MAX_BYTES))
    return found if isinstance(found, dict) else {}
