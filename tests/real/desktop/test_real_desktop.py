"""The desktop as it is: started by a Docker engine from the skeleton image, and asked by HTTP."""

import io
import json
import time
from xml.etree.ElementTree import fromstring

import pytest

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def desktop(start_desktop):
    """A desktop of 640 × 480 with a text editor, which has been painted."""
    container, caller = start_desktop(app="mousepad", width=640, height=480)
    caller.until("the editor's window", lambda: "mousepad" in windows(caller))
    return container, caller


@pytest.fixture(scope="module")
def empty(start_desktop):
    """A desktop of 320 × 240 without a window; it starts a new interpreter for every action."""
    return start_desktop(width=320, height=240, warm_actions=False)


@pytest.fixture
def caller(desktop):
    return desktop[1]


def windows(caller) -> str:
    return caller.post("/execute", {"command": ["wmctrl", "-lx"]})[1]["output"].lower()


def picture(caller):
    image = pytest.importorskip("PIL.Image")
    status, kind, body = caller.send("GET", "/screenshot")
    assert (status, kind) == (200, "image/png")
    opened = image.open(io.BytesIO(body))
    opened.load()
    return opened


def num_clients(container) -> int:
    """Count the connections to the X server's socket."""
    code = "import sys; print(sum(line.rstrip().endswith('/tmp/.X11-unix/X99') for line in open('/proc/net/unix')))"
    return int(container.exec_run(["/usr/bin/python3", "-c", code])[1])


def test_it_runs_as_a_plain_user_without_capabilities(caller):
    status = caller.post("/execute", {"command": ["cat", "/proc/self/status"]})[1]["output"]
    facts = dict(line.split(":", 1) for line in status.splitlines())
    assert facts["Uid"].split() == ["1000"] * 4
    assert [int(facts[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
    assert facts["NoNewPrivs"].strip() == "1"
    assert caller.post("/execute", {"command": "touch /usr/x /etc/x; id -un", "shell": True})[1]["output"] == "user\n"


def test_the_screen_is_as_large_as_asked_for_and_not_black(caller):
    image = picture(caller)
    assert image.size == (640, 480)
    assert len(image.getcolors(2**20)) > 10
    assert caller.post("/screen_size", {}) == (200, {"width": 640, "height": 480})


def test_an_action_moves_the_pointer_and_the_cursor_is_drawn(caller):
    assert caller.act("pyautogui.moveTo(20, 460)")[1]["returncode"] == 0
    assert caller.get("/cursor_position") == (200, [20, 460])
    here = picture(caller).crop((14, 454, 34, 474))
    assert caller.act("pyautogui.moveTo(600, 20)")[1]["returncode"] == 0
    assert picture(caller).crop((14, 454, 34, 474)).tobytes() != here.tobytes()


def test_typed_text_is_saved_by_the_editor_and_read_as_a_file(caller):
    assert caller.upload("~/Documents/note.txt", b"first\n")[0] == 200
    assert caller.post("/setup/open_file", {"path": "~/Documents/note.txt"})[0] == 200
    before = picture(caller)
    caller.until(
        "focus",
        lambda: (
            "note.txt" in caller.post("/execute", {"command": "xdotool getactivewindow getwindowname"})[1]["output"]
        ),
    )
    assert caller.act("pyautogui.typewrite('Hello '); pyautogui.hotkey('ctrl', 's')")[1]["error"] == ""
    saved = caller.until(
        "the saved file", lambda: caller.form("/file", "file_path=~/Documents/note.txt")[1] != b"first\n"
    )
    assert saved
    caller.until("the text", lambda: caller.form("/file", "file_path=~/Documents/note.txt") == (200, b"Hello first\n"))
    assert picture(caller).tobytes() != before.tobytes()


@pytest.mark.parametrize(
    "code",
    [
        "print(1); print(2, file=__import__('sys').stderr)",
        "exit(3)",
        "exit('why')",
        "1/0",
        "x y",
        "import sys; print(sys.argv, __name__, sys.path[0], sorted(globals()))",
        "import atexit; atexit.register(print, 'end')",
        "import threading; threading.Timer(0.05, print, ['late']).start()",
        "import os; os.kill(os.getpid(), 15)",
        "raise SystemExit(None)",
    ],
)
def test_a_warm_interpreter_leaves_what_a_new_one_leaves(caller, code):
    warm = caller.post("/execute", {"command": ["python", "-c", f"import pyautogui; {code}"]})
    new = caller.post("/execute", {"command": ["/usr/bin/python3", "-c", f"import pyautogui; {code}"]})
    assert warm == new


def test_an_action_can_copy_and_paste(caller):
    # On a busy machine the program that pyperclip starts to copy may be done before it can be asked for the text.
    read = "next(filter(None, (pyperclip.paste() for _ in range(200))), 'nothing')"
    code = f"import pyautogui, pyperclip; pyperclip.copy('größer'); print({read})"
    assert caller.post("/execute", {"command": ["python", "-c", code]})[1]["output"] == "größer\n"


def test_screenshots_and_actions_leave_no_x_client_behind(desktop):
    container, caller = desktop
    caller.act("pyautogui.moveTo(9, 9)")
    time.sleep(0.5)
    before = num_clients(container)
    for number in range(320):
        status, _, body = caller.send("GET", "/screenshot")
        assert status == 200
        assert body.endswith(b"IEND\xaeB`\x82")
        if number % 20 == 0:
            caller.act(f"pyautogui.moveTo({50 + number}, 50)")
    caller.until("the same number of X clients", lambda: num_clients(container) <= before, seconds=5)


def test_the_accessibility_tree_has_the_application(caller):
    status, told = caller.get("/accessibility")
    assert status == 200
    root = fromstring(told["AT"])
    assert root.tag == "desktop-frame"
    state = "{https://accessibility.ubuntu.example.org/ns/state}"
    place = "{https://accessibility.ubuntu.example.org/ns/component}"
    menus = [node for node in root.iter("menu") if node.get("name") == "File"]
    assert menus
    assert menus[0].get(f"{state}showing") == "true"
    assert json.loads(menus[0].get(f"{place}size", "").replace("(", "[").replace(")", "]"))[1] > 5
    assert [node.get("name") for node in root.findall("application")].count("mousepad") == 1


def test_windows_are_found_by_class_and_title(caller):
    assert caller.form("/window_size", "") == (400, {"error": "app_class_name is required"})
    assert caller.form("/window_size", "app_class_name=gimp")[0] == 404
    assert caller.form("/window_size", "app_class_name=mousepad")[1]["width"] > 100
    assert caller.post("/setup/launch", {"command": "galculator"}) == (200, "galculator launched successfully")
    caller.until("the calculator", lambda: "galculator" in windows(caller))
    assert caller.post("/setup/activate_window", {"window_name": "mousepad", "by_class": True})[0] == 200
    active = {"command": "xdotool getactivewindow getwindowname"}
    caller.until("the editor in front", lambda: "mousepad" in caller.post("/execute", active)[1]["output"].lower())
    assert caller.post("/setup/close_window", {"window_name": "GALC"}) == (200, "Window closed successfully.")
    caller.until("the calculator to be gone", lambda: "galculator" not in windows(caller))
    for route in ("activate", "close"):
        assert caller.post(f"/setup/{route}_window", {}) == (400, "window_name required")
        assert caller.post(f"/setup/{route}_window", {"window_name": "nobody", "strict": True})[0] == 200


def test_the_wallpaper_is_shown_and_told(empty):
    _, caller = empty
    image = pytest.importorskip("PIL.Image")
    assert caller.post("/wallpaper", {})[0] == 404
    assert caller.post("/setup/change_wallpaper", {}) == (400, "Path not supplied!")
    assert caller.post("/setup/change_wallpaper", {"path": "/none"}) == (404, "File not found: /none")
    buffer = io.BytesIO()
    image.new("RGB", (32, 24), (200, 30, 40)).save(buffer, "PNG")
    caller.upload("~/red.png", buffer.getvalue())
    assert caller.post("/setup/change_wallpaper", {"path": "~/red.png"}) == (200, "Wallpaper changed successfully")
    caller.until("the red screen", lambda: picture(caller).getpixel((3, 236)) == (200, 30, 40))
    assert caller.post("/wallpaper", {}) == (200, buffer.getvalue())
    caller.upload("~/bad.png", b"no picture")
    assert caller.post("/setup/change_wallpaper", {"path": "~/bad.png"})[0] == 500


def test_the_panel_shows_its_items_and_writes_what_was_done(start_desktop):
    _, caller = start_desktop(width=224, height=224)
    button = {"kind": "button", "id": "save", "text": "Save", "color": "#ff0000"}
    items = [{"kind": "label", "text": "Save", "wide": 2}, button, {"kind": "check", "id": "wifi", "text": "Wi-Fi"}]
    items += [{"kind": "entry", "id": "name", "text": ""}, {"kind": "space"}]
    caller.upload("~/panel.json", json.dumps({"columns": 2, "state": "~/state.json", "items": items}).encode())
    assert caller.post("/setup/launch", {"command": ["panel", "~/panel.json"]})[0] == 200
    state = lambda: caller.form("/file", "file_path=~/state.json")  # noqa: E731
    caller.until("the red button", lambda: picture(caller).getpixel((16, 90)) == (255, 0, 0))
    active = {"command": ["xdotool", "getactivewindow", "getwindowname"]}  # clicks before that may be lost
    caller.until("the focus", lambda: caller.post("/execute", active)[1]["output"] == "Panel\n")
    assert json.loads(state()[1]) == {"clicked": [], "checked": {"wifi": False}, "entries": {"name": ""}}
    for place in ("56, 112", "168, 112"):  # two clicks in one action follow so fast that the first may be lost
        caller.act(f"pyautogui.click({place})")
    wanted = {"clicked": ["save"], "checked": {"wifi": True}, "entries": {"name": ""}}
    caller.until("the clicks", lambda: json.loads(state()[1]) == wanted)
    left_of_the_pointer = lambda: picture(caller).crop((0, 150, 40, 224)).tobytes()  # noqa: E731
    before = left_of_the_pointer()
    caller.act("pyautogui.click(56, 190)")
    # The window manager hands a click on when it comes to it; keys do not wait for that and go where the focus is.
    caller.until("the caret", lambda: left_of_the_pointer() != before)
    caller.act("pyautogui.write('ab')")
    wanted["entries"] = {"name": "ab"}
    caller.until("what was done", lambda: json.loads(state()[1]) == wanted)


def test_a_killed_server_comes_back_and_applications_go_on(empty):
    container, caller = empty
    assert caller.post("/setup/launch", {"command": ["xterm"]})[0] == 200
    caller.until("the terminal", lambda: "xterm" in windows(caller))
    container.exec_run(["sh", "-c", "kill -9 $(pgrep -fx '/usr/bin/python3 -m dartsim.real.desktop.server')"])
    caller.until("the server to come back", lambda: caller.send("GET", "/screenshot")[0] == 200)
    assert "xterm" in windows(caller)
    assert caller.act("print(pyautogui.size())")[1]["output"] == "Size(width=320, height=240)\n"


def test_a_dead_x_server_is_an_error_and_never_an_old_picture(empty):
    container, caller = empty
    container.exec_run(["sh", "-c", "kill -9 $(pgrep Xvfb)"])
    caller.until("the error", lambda: caller.send("GET", "/screenshot")[0] == 500)
    assert caller.send("GET", "/screenshot")[0] == 500
    assert caller.act("print(1)")[1]["returncode"] == 1
    # Its container runs on, as a desktop's whose display died would.
    container.reload()
    assert container.status == "running"
