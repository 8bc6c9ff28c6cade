"""The mock desktop: a small deterministic desktop with real state, real pixels, and tasks to learn on.

Importing this package registers ``dartsim/MockDesktop-v0`` with gymnasium; what it needs is imported when one
is made. From the bottom up: ``geometry``, ``widgets``, ``window``, ``layout`` (what there is and where); ``desktop``
(all state); ``commands``, ``pointer``, ``keyboard``, ``perform`` (what actions do); ``canvas``, ``font``, ``scene``,
``paint`` (pixels); ``tree`` (accessibility); ``evaluators`` (scores); ``families``, ``suites`` (tasks); ``oracle``
(solves them); ``env`` (the gymnasium environment).
"""

from gymnasium.envs.registration import register, registry

if "dartsim/MockDesktop-v0" not in registry:
    register(id="dartsim/MockDesktop-v0", entry_point="dartsim.envs.mock.env:MockDesktop")
