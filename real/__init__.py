"""What exists outside the simulation: models, learners and machines; later desktops, engines, clusters.

``real.vlm`` is a vision-language model that acts, ``real.learner`` trains it, ``real.warmstart`` gives it a first
idea, ``real.evaluate`` tries it out, ``real.machine`` tells what machine and software a run used. The package never
imports SimPy, ``dartsim.sim`` or the mock desktop; ``dartsim.run`` puts it together with them. Desktops in containers
and inference servers are not in it yet.
"""
