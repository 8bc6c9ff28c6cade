"""What exists outside the simulation: models, learners and machines, and desktops.

``real.vlm`` is a vision-language model that acts, ``real.learner`` trains it, ``real.warmstart`` gives it a first
idea, ``real.evaluate`` tries it out, ``real.machine`` tells what machine and software a run used. ``real.osworld``
uses desktops that speak OSWorld's protocol. The package never imports SimPy, ``dartsim.sim`` or the mock desktop;
``dartsim.run`` puts it together with them.

Importing this package registers ``dartsim/OSWorld-v0`` with gymnasium; what it needs is imported when one is made.
"""

from gymnasium.envs.registration import register, registry

if __name__ != "dartsim.real":
    raise ImportError(f"this package is dartsim.real, not {__name__}: import it by that name")

if "dartsim/OSWorld-v0" not in registry:
    register(id="dartsim/OSWorld-v0", entry_point="dartsim.real.osworld.env:OSWorldEnv")
