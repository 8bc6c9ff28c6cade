"""A client without a desktop, for set-up steps and scoring. Tests reach this module through the fixture ``fakes``."""

from dartsim.real.osworld.errors import VmBadReply, VmMissing
from dartsim.real.osworld.fetch import DesktopAddress, Downloads, TaskFolder
from dartsim.real.osworld.replies import Executed


class FakeClient:
    """Has the methods of ``VmClient`` that set-up and scoring use.

    Attributes:
        calls: What was asked, in order: the method's name and its arguments.
        files: The desktop's files, by path.
        outputs: What commands give, by command (joined by blanks): an ``Executed``, or an error to raise; a list is
            used up from its front, and its last stays.
        fails: Errors to raise, by method.
    """

    def __init__(self, files=None, outputs=None, tree="<desktop-frame/>", fails=None):
        self.calls = []
        self.files = dict(files or {})
        self.outputs = dict(outputs or {})
        self.tree = tree
        self.fails = dict(fails or {})
        self.terminal_text = None
        self.picture = b"picture"

    def did(self, name, *arguments):
        self.calls.append((name, *arguments))
        if name in self.fails:
            raise self.fails[name]

    async def execute(self, command, *, shell=False, seconds=None, action=True):
        self.did("execute", command, shell)
        words = command if isinstance(command, str) else " ".join(command)
        found = self.outputs.get(words, Executed("", "", 0))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def execute_with_verification(
        self, command, verification, *, shell=False, max_wait_seconds=10.0, check_seconds=1.0
    ):
        self.did("execute_with_verification", command, verification, shell, max_wait_seconds, check_seconds)
        return Executed("", "", 0)

    async def launch(self, command, *, shell=False):
        self.did("launch", command, shell)
        return "launched"

    async def open_file(self, path, *, seconds):
        self.did("open_file", path)
        return "opened"

    async def upload(self, path, data):
        self.did("upload", path, data)
        self.files[path] = data

    async def file(self, path):
        self.did("file", path)
        if path not in self.files:
            raise VmMissing(f"no {path}", status=404)
        return self.files[path]

    async def activate_window(self, name, *, strict=False, by_class=False):
        self.did("activate_window", name, strict, by_class)

    async def close_window(self, name, *, strict=False, by_class=False):
        self.did("close_window", name, strict, by_class)

    async def change_wallpaper(self, path):
        self.did("change_wallpaper", path)

    async def terminal(self):
        self.did("terminal")
        return self.terminal_text

    async def wallpaper(self):
        self.did("wallpaper")
        return self.picture

    async def accessibility(self):
        self.did("accessibility")
        return self.tree

    async def list_directory(self, path):
        self.did("list_directory", path)
        if path != "/there":
            raise VmBadReply("not a folder", status=400)
        return {"type": "directory", "name": "there", "children": [{"type": "file", "name": "a.jpg"}]}


def folder(path, *, sources=(), transport=None, **address):
    """Return the folder of an attempt below ``path``."""
    downloads = Downloads(path / "downloads", sources=sources, transport=transport)
    return TaskFolder(
        path / "attempt", address=DesktopAddress(server_url="http://127.0.0.1:5000", **address), downloads=downloads
    )
