"""Desktops: the gymnasium GUI interface, task files, the simulated desktop, and adapters to the loop's time.

Importing this package registers its environments with gymnasium; their dependencies are imported when one is made.
"""

from gymnasium.envs.registration import register, registry

from dartsim.core.types import Observation, Task
from dartsim.envs.base import DONE, FAIL, WAIT, GuiEnv, UnicodeText

__all__ = ["DONE", "FAIL", "WAIT", "GuiEnv", "Observation", "Task", "UnicodeText"]

if __name__ != "dartsim.envs":
    raise ImportError(f"this package is dartsim.envs, not {__name__}: import it by that name")

if "dartsim/SimDesktop-v0" not in registry:
    register(id="dartsim/SimDesktop-v0", entry_point="dartsim.envs.simulated:SimDesktop", kwargs={"draw": True})
if "dartsim/MockDesktop-v0" not in registry:
    register(id="dartsim/MockDesktop-v0", entry_point="dartsim.envs.mock.env:MockDesktop")
