"""Our own small desktop: its image, the server inside it, and how it is started.

    recipe.py      the contents of an image, as data
    skeleton.py    the part that comes from this machine
    debian.py      an image of Debian with the packages
    images.py      makes the image, with pinned Python packages, and specifies its containers
    server/        the server inside, on OSWorld's protocol; files/ the start script, the panel, settings

Inside the container the ``server`` folder is imported under the same name, by another interpreter, without this file.
"""

from dartsim.real.desktop.images import build, desktop_spec
from dartsim.real.desktop.skeleton import missing_packages

__all__ = ["build", "desktop_spec", "missing_packages"]
