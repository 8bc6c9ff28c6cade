"""What can go wrong with what a run keeps on disk.

StoreFault (DartsimError)
├── StoreFull      no room is left: free some, then resume the run
├── TakenOver      another process opened the same run for writing
├── TornFile       a file on disk is not what was written
└── TornRecord     a stored trajectory cannot be given back whole
LayoutUnknown (ConfigError)   the database was made by a newer dartsim, or is none of ours
"""

from __future__ import annotations

from dartsim.core.errors import ConfigError, DartsimError


class StoreFault(DartsimError):
    """The store could not keep or give back something; what was kept before is as it was."""

    cause = "store_fault"


class StoreFull(StoreFault):
    """No room is left on the disk."""

    cause = "disk_full"


class TakenOver(StoreFault):
    """Another process writes to this run now; this one may not any more."""

    cause = "store_taken_over"


class TornFile(StoreFault):
    """A file is missing, was written half, or was changed afterwards."""

    cause = "torn_file"


class TornRecord(StoreFault):
    """A trajectory's rows or files do not hold what was recorded."""

    cause = "torn_record"


class LayoutUnknown(ConfigError):
    """The database has tables that this version of dartsim cannot read."""
