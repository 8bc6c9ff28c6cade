"""Desktops, vLLM engines and the ranks of a learner on a Ray cluster, behind the same ports; needs the extra ``ray``.

    control plane (one process)                    nodes of the cluster
    RayProvider, RayDesktop   -- calls -->         DesktopHost   an actor that drives the desktops of its node
    VllmWorker over RayEngine -- calls -->         EngineHost    an actor that starts and watches a vLLM server
                              -- HTTP  -->                       the server
    FsdpLearner over RayRanks -- calls -->         RankActor     an actor for each rank
                              -- files on a shared disk -->

Ray places the actors by the resources they ask for, restarts them, and carries the calls. The state of an actor is lost
with it: the desktops of a host, the requests of an engine, the update of the ranks. Each becomes a fault of its port,
with a cause, and everything else continues.
"""
