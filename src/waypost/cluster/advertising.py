"""Checks that the address which a node advertises reaches it.

Rule 1  An address that reaches another relay, or that this node rejects as not its own name, is a
        mistake: the node stops. Its agents would be sent there.
Rule 2  One that does not answer may be right all the same, if this machine cannot reach itself
        through it. That is reported, and checked again.
"""

import asyncio
import json
import logging
import urllib.error
import urllib.request
from typing import Any

from waypost.cluster.node import Node

log = logging.getLogger("waypost.cluster")

NODE_PATH = "/v1/node"
CHECK_S = 60.0
_ANSWER_S = 5.0
_ANSWER_MAX_BYTES = 4096
_MISDIRECTED = 421


async def keep_checking(node: Node) -> None:
    """Check the advertised address of a node that listens, and start it unless that is wrong.

    Then check it again and again until cancelled.
    """
    is_started = False
    while True:
        wrong, node.unreachable = await asyncio.to_thread(
            check_address, node.options.address, node.instance
        )
        if wrong:
            if not node.failed.done():
                node.failed.set_result(wrong)
            return
        if not is_started:
            is_started = True
            node.start()
        if node.unreachable:
            log.warning("cluster: %s", node.unreachable)
        await asyncio.sleep(CHECK_S)


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
    except (OSError, ValueError) as problem:
        return "", (
            f"--advertise {address} cannot be reached from this machine ({problem}): agents are"
            " sent there; check the address, and that a firewall or proxy lets them through"
        )
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
