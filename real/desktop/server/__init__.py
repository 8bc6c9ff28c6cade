"""The server inside a desktop's container: OSWorld's protocol over HTTP, on Flask as the original.

It is run by the container's own Python, from a copy of this folder; Flask, Pillow, python-xlib, mss and AT-SPI come
from there. ``app``, ``commands``, ``files`` and ``warm`` need Flask at most.

    __main__.py        the table of routes, and the program
    app.py             the Flask application: who may call, error pages
    commands.py        programs: execute, launch
    actions.py         warm interpreters for ``python -c "import pyautogui …"``; warm.py is their parent process
    files.py           directories, files, uploads
    desktop.py         screenshot, sizes, cursor, windows, wallpaper, accessibility, terminal
    x11.py             the one X connection, screenshots, and the windows as the window manager reports them
    accessibility.py   the AT-SPI tree as XML, in an interpreter of its own

Departures from OSWorld's server, all of them on purpose:
- Recordings, ``/run_python``, ``/run_bash_script`` and ``/setup/download_file`` are missing: nothing here calls them,
  nor does an evaluator of desktop-env.
- The cursor's hot spot is at the pointer; in the original the picture's corner is.
- A screenshot is never written to a file, so concurrent callers get complete PNGs; no X client is left behind.
- A command ends with its program. If it left something running in the background (an application, a clipboard owner),
  the answer comes immediately; the original waits for the pipe, up to 120 s, and then fails. At the time limit the
  program's whole process group is killed, not only its leader.
- ``~/`` is expanded in the words of a command; the original does this too, but fails for a string with ``shell``.
- ``/window_size`` of an unknown class is 404 with a JSON error (in the original 500 with an HTML page).
- ``/accessibility`` needs no LibreOffice; ``/terminal`` reads any focused terminal that AT-SPI shows.
- The wallpaper is the root window's; its path is kept in ``~/.config/dartsim-wallpaper`` and not in GNOME's settings.
- ``/setup/open_file`` looks for the window ten times a second, the original once.
- Containers on the same network are refused (403); the original answers anyone.
"""
