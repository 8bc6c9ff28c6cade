"""What exists outside the simulation: this is where real desktops, engines and optimizers live.

The package is for the parts that are not modelled: desktops in containers, inference servers, torch
learners, a cluster of machines. It never imports SimPy, ``dartsim.sim`` or a mock desktop, and only
``dartsim.cli`` and the experiments import it.

Today it holds one module: ``real.machine``, which tells what machine and software a run used. There is no
real backend in it yet; the control plane runs against the simulated cluster only.
"""
