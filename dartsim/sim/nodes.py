"""Nodes: simulated machines as the loop sees them, the unit of crashing and of perturbed scheduling.

Code runs on the node whose ``with`` block it, or the task it runs in, was started from. Everything else
belongs to the control plane, which is one node too, without a name.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, Token


class Node:
    """One incarnation of a simulated machine; a restarted machine is a new ``Node`` of the same name.

    ``with node:`` starts tasks and timers on it.

    Attributes:
        name: For messages.
        alive: False once ``SimLoop.crash`` has taken it down.
    """

    __slots__ = ("_tokens", "alive", "name")

    def __init__(self, name: str) -> None:
        """Start it."""
        self.name = name
        self.alive = True
        self._tokens: list[Token[Node | None]] = []

    def __enter__(self) -> Node:
        self._tokens.append(NODE.set(self))
        return self

    def __exit__(self, *exc_info: object) -> None:
        NODE.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return f"<Node {self.name}{'' if self.alive else ' (crashed)'}>"


NODE: ContextVar[Node | None] = ContextVar("NODE", default=None)
"""The node the running code belongs to; None is the control plane."""


def is_dead(context: Context) -> bool:
    """Whether what runs in ``context`` belongs to a crashed node."""
    node = context.get(NODE)
    return node is not None and not node.alive
