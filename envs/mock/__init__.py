"""The mock desktop: a small deterministic desktop with real state, real pixels, and tasks to learn on.

Importing this package registers ``dartsim/MockDesktop-v0`` with gymnasium; what it needs is imported when one
is made. The parts, from below: ``geometry``, ``widgets``, ``window``, ``layout`` (what there is and where),
``desktop`` (the windows and who is on top), ``commands``, ``menus``, ``pointer``, ``keyboard``, ``hands`` (what
actions do), ``font``, ``scene``, ``paint`` (pixels), ``tree`` (accessibility), ``state``, ``evaluators`` (scores),
``families``, ``suites`` (tasks), ``oracle`` (who can do them), ``env`` (the gymnasium environment).
"""

from gymnasium.envs.registration import register, registry

if "dartsim/MockDesktop-v0" not in registry:
    register(id="dartsim/MockDesktop-v0", entry_point="dartsim.envs.mock.env:MockDesktop")
