"""What runs inside a sandbox, by an interpreter that has nothing of ours installed: only the standard library is used.

``supervisor`` is the sandbox's first process, ``child`` runs one call, ``desktop_env_functions`` and ``own_functions``
are the metrics and getters, ``wire`` is the format of requests and values, which the driver reads too.
"""
