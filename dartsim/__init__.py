"""dartsim: decoupled, asynchronous reinforcement learning of GUI agents, simulation-first.

One control plane, written once as plain asyncio, in real time or in virtual time:

    task order --> DataManager --admit--> EnvCluster: a desktop plays an attempt, turn by turn
                       ^   |                 |    ^
                       |   |                 v    |
                       |   |            RolloutService --> workers (one engine each)
                 finish|   |next_batch       ^
                       |   v                 |publish (weight sync, worker by worker)
                  trajectories --> Trainer: update --> new version

Backends sit behind the doors of ``dartsim.core.ports``: a SimPy cluster model (``dartsim.sim``, ``envs``), and
desktops, engines and optimizers that exist (``real``).
"""
