"""What a server is told: where it listens, whom it lets in, how much it takes on."""

from __future__ import annotations

import hmac
import ipaddress
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from ..base import OptionError
from .arrays import WireLimits

SCHEME = "Api-Key "


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address. Of names, only ``localhost`` is taken to be one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_let_in(authorizations: Sequence[str], key: str | None) -> bool:
    """Whether ``Authorization`` headers have the key; the time this takes does not show it."""
    if key is None:
        return True
    given = authorizations[0] if len(authorizations) == 1 else ""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"{SCHEME}{key}".encode())


_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class ServeOptions:
    """How a policy is served. Times are in seconds.

    Attributes:
        host: The address to listen on.
        port: The port; 0 lets the system choose.
        api_key: What clients have to present; None lets everybody in who reaches the address.
        max_clients: How many clients may be connected.
        max_waiting: How many requests may wait for the one that runs.
        timeout_s: How long a request may take, its wait included.
        drain_s: How long a server that is told to end waits for what it has accepted.
        warm_up: Calls for each example; None is as many as it takes, 0 none.
        tracebacks: Whether clients see where a policy failed, not only why.
        limits: What a message may be.

    Raises:
        OptionError: A value is impossible, or others than this machine may come in without a key.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = field(default=None, repr=False)
    max_clients: int = 32
    max_waiting: int = 16
    timeout_s: float = 60.0
    drain_s: float = 30.0
    warm_up: int | None = None
    tracebacks: bool = False
    limits: WireLimits = field(default_factory=WireLimits)

    def __post_init__(self) -> None:
        for name, least in (("max_clients", 1), ("max_waiting", 0), ("warm_up", 0), ("port", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"{name} is {value}, and has to be {least} or more")
        for each in fields(WireLimits):
            if getattr(self.limits, each.name) < 1:
                raise OptionError(
                    f"limits.{each.name} is {getattr(self.limits, each.name)}, and has to be 1 or more"
                )
        for name in ("timeout_s", "drain_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise OptionError(
                    f"{name} is {getattr(self, name)}, and has to be a number of seconds above 0"
                )
        if self.api_key is not None and _KEY.fullmatch(self.api_key) is None:
            raise OptionError("api_key is empty or has other letters than printable ASCII without spaces")
        if self.api_key is None and not is_local(self.host):
            raise OptionError(
                f"host={self.host!r} lets other machines in: give a key as well, in ROTE_API_KEY or "
                "by --api-key, or listen on 127.0.0.1"
            )
