"""Faults of actors, as faults of the ports, counted by their ``cause``.

DartsimError
├── ActorLost                the actor or its node ended under a call; Ray restarts it without its state
│   └── ActorGone            the actor ended for good: its restarts are used up, or it was killed
└── EnvBroken
    └── HostLost             the desktop host ended, and its desktops with it
"""

from __future__ import annotations

from typing import ClassVar

from dartsim.core.errors import DartsimError, EnvBroken


class ActorLost(DartsimError):
    cause: ClassVar[str] = "actor_lost"


class ActorGone(ActorLost):
    cause: ClassVar[str] = "actor_gone"


class HostLost(EnvBroken):
    cause: ClassVar[str] = "host_lost"
