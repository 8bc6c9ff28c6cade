"""Whether an address is reached from its own machine only."""

from __future__ import annotations

import ipaddress


def is_loopback(address: str) -> bool:
    """Whether an address that something listens on is reached from its machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
