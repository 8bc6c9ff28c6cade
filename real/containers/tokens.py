"""Tokens of desktops that can be reached from elsewhere: made for a run, given to its containers, kept in memory."""

from __future__ import annotations

import secrets
from dataclasses import replace

from dartsim.real.containers.spec import ContainerSpec

VARIABLE = "DESKTOP_TOKEN"


def with_token(spec: ContainerSpec) -> tuple[ContainerSpec, str]:
    """Return a spec whose server wants a new token, and the token."""
    token = secrets.token_urlsafe(32)
    return replace(spec, environment={**spec.environment, VARIABLE: token}), token
