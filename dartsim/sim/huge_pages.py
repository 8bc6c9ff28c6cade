"""Python's objects in huge pages, so that large simulations wait less for memory.

A simulated cluster touches its desktops in random order. With pages of 4 KiB almost every access misses the TLB, with
pages of 2 MiB few do. Linux grants such pages on request ("madvise", the default of most distributions). Objects and
their sizes stay the same.

In compiled form ``huge_pages.c`` replaces this file: pure Python cannot replace its own allocator.
"""

from __future__ import annotations


def use_huge_pages() -> bool:
    """Allocate new objects in huge pages from now on; return whether that is possible. May be called again."""
    return False
