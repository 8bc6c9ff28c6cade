"""Everything real, not simulated: desktops, inference engines, learners, and the models they serve and train.

    containers, desktop, osworld   desktops: Docker containers, our own image, OSWorld's protocol and tasks
    engines, local                 inference: vLLM servers; a worker in threads of this process
    learners                       torch in one process, or over several (FSDP)
    ray_cluster                    desktops, vLLM servers and ranks on the nodes of a Ray cluster
    stand_ins                      servers that speak the protocols of desktops and engines, for checks and tests
    vlm                            vision-language models: prompts, sampling, scoring
    evaluate, pool_files           attempts without a cluster; files of stored successes
    machine, processes, scratch    facts about this machine, process pools, temporary directories

This package never imports SimPy, ``dartsim.sim`` or the mock desktop; ``dartsim.run`` combines it with them.
Importing it registers ``dartsim/OSWorld-v0`` with gymnasium.
"""

from gymnasium.envs.registration import register, registry

if __name__ != "dartsim.real":
    raise ImportError(f"this package is dartsim.real, not {__name__}: import it by that name")

if "dartsim/OSWorld-v0" not in registry:
    register(id="dartsim/OSWorld-v0", entry_point="dartsim.real.osworld.env:OSWorldEnv")
