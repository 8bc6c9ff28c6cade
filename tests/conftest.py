"""Settings of the whole test suite.

``async def`` tests run in virtual time by the pytest plugin that comes with the package.
"""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a shared machine's pauses say nothing about the code. In CI the examples are the same every
# time, so that a red run is red again; elsewhere hypothesis goes on looking for new ones.
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
