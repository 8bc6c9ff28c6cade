"""Screenshots in requests: each is sent to an engine once, and later referred to by its hash.

vLLM caches preprocessed images by their ``uuid``, and reads a missing ``url`` as a cached one. A screenshot is in up to
five prompts, so four fifths of the bytes need not be sent, read and decoded again.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dartsim.core.png import png_of

if TYPE_CHECKING:
    from dartsim.real.vlm.images import Picture


class SentImages:
    """Keys of the images that an engine was sent, the ``limit`` most recently used ones.

    The engine may have dropped some of them: it refuses a request that names one, which is then sent with its images.
    """

    def __init__(self, limit: int = 4_096) -> None:
        self._limit = limit
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[bytes]) -> None:
        """Note that the engine has just used these images."""
        for key in keys:
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._limit:
            self._keys.popitem(last=False)

    def remove(self, keys: Iterable[bytes]) -> None:
        """Note that the engine may lack these images."""
        for key in keys:
            self._keys.pop(key, None)


def image_part(picture: Picture, *, sent: bool = False) -> bytes:
    """Return the JSON of a screenshot in ``content_parts``; one that the engine was ``sent`` is only named.

    A desktop's file is sent as it came: the engine resizes it just as ``ImageRules`` do.
    """
    name = picture.key.hex().encode()
    if sent:
        return b'{"type":"image_url","url":null,"uuid":"%s"}' % name
    shown = picture.screenshot
    png = png_of(shown)
    return b'{"type":"image_url","url":"data:image/png;base64,%s","uuid":"%s"}' % (base64.b64encode(png), name)
