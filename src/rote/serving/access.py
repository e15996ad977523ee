"""Who may come in: the addresses of this machine, and the key."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence

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
