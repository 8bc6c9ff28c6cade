"""Run CPython's own asyncio test modules on SimLoop: python cpython_asyncio.py MODULE...

Every event loop that the tests make by way of the default policy is a SimLoop. A process of its own, because
that is patched into asyncio.
"""

import asyncio
import asyncio.unix_events
import resource
import signal
import sys
import unittest
import warnings

from dartsim.sim import SimLoop

MOST_BYTES = 4 * 2**30
"""Address space: a test that waits for a signal by spinning must not fill the machine where none comes."""


def main(modules):
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may have ignored it
    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.unix_events._UnixDefaultEventLoopPolicy._loop_factory = SimLoop
    assert isinstance(asyncio.new_event_loop(), SimLoop)
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromName(f"test.test_asyncio.{module}") for module in modules
    )
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    print(f"ran={result.testsRun} skipped={len(result.skipped)}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
