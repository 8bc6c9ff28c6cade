"""Desktops, engines and the learner on a Ray cluster, behind the same ports; needs the extra ``ray``.

    control plane (one process)                    nodes of the cluster, one actor each
    RayProvider, RayDesktop   -- calls -->         DesktopHost   the desktops of its node
    VllmWorker over RayEngine -- calls -->         EngineHost    starts and watches a vLLM server
                              -- HTTP  -->                       the server
    RayWorker                 -- calls -->         WorkerHost    a model in threads of the actor
    RayLearner                -- calls -->         LearnerHost   the optimizer, or torchrun's ranks beside it

Ray places the actors by the resources they ask for, restarts them, and carries the calls. The state of an actor is lost
with it: the desktops of a host, the requests of an engine, the update of the learner. Each becomes a fault of its port,
with a cause, and everything else goes on.
"""
