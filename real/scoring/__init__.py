"""Scores are computed in sandboxes: files and options go in, one number comes out.

A sandbox (``sandbox.py``) is a supervisor (``sandboxed/``) that ``container.py`` starts on a Docker engine;
``SandboxPool`` lends several of them, and ``relay.py`` lets a getter reach its desktop.
``docs/security.md`` says what is trusted.
"""

from dartsim.real.scoring.pool import SandboxPool
from dartsim.real.scoring.sandbox import FileInput, GetterValue, ScoreFault, ScorerFacts

__all__ = ["FileInput", "GetterValue", "SandboxPool", "ScoreFault", "ScorerFacts"]
