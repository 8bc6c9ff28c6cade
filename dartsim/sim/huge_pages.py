"""Python's objects in huge pages, so that a turn of a large cluster waits less for memory.

A simulated cluster touches its desktops in random order. With pages of 4 KiB, the processor has to look up where almost
every one of them is; with pages of 2 MiB it need not. Linux gives such pages to those who ask ("madvise", the default
of most distributions). The objects and the bytes that they take stay the same.

In compiled form ``huge_pages.c`` takes the place of this file: Python cannot replace its own allocator.
"""

from __future__ import annotations


def use_huge_pages() -> bool:
    """Have the memory of objects that are made from now on be in huge pages, for as long as this process runs.

    Returns whether it is; calling it again changes nothing.
    """
    return False
