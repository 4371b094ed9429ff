"""Free TCP ports below the range that the kernel gives to outgoing connections, and where daemons listen on them."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from .errors import ClusterError

LOOPBACK = "127.0.0.1"
_LOWEST, _HIGHEST = 10_000, 32_000


def loopback_of_this_machine() -> str | None:
    """Return the loopback address that this machine's name stands for, None where it stands for another one."""
    try:
        answer = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    except OSError:
        return None
    found = {str(each[4][0]) for each in answer}
    return found.pop() if len(found) == 1 and all(each.startswith("127.") for each in found) else None


def listens(port: int, address: str) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_block(count: int, taken: Collection[int] = (), tries: int = 200) -> int:
    """Return the first of ``count`` neighbouring ports that nobody listens on.

    Parameters
    ----------
    count : int
        How many ports.
    taken : collection of int
        Ports promised to others though nobody may listen there at this moment.
    """
    reserved = frozenset(taken)
    for _ in range(tries):
        first = random.randint(_LOWEST, _HIGHEST - count)
        block = range(first, first + count)
        if reserved.isdisjoint(block) and all(_is_free(port) for port in block):
            return first
    raise ClusterError(f"no {count} neighbouring free ports between {_LOWEST} and {_HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
