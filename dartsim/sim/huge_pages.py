"""Python's objects in huge pages, so that a turn of a large cluster waits less for memory.

A simulated cluster touches its desktops in random order. With pages of 4 KiB, the processor also looks up where almost
every one of them is; with 2 MiB it need not. Linux gives huge pages to those who ask for them ("madvise", the default of
most distributions). The objects themselves and how many bytes they take stay the same.

In compiled form ``huge_pages.c`` takes the place of this file: Python cannot replace its own allocator.
"""

from __future__ import annotations


def use_huge_pages() -> bool:
    """Have the memory of objects that are made from now on be in huge pages, for as long as this process runs.

    Returns whether it is; calling it again changes nothing.
    """
    return False
