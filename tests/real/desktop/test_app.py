import ipaddress
import threading

import pytest
from flask import request

from dartsim.real.desktop.server import app as app_module
from dartsim.real.desktop.server import files
from dartsim.real.desktop.server.app import json_body, make_app, own_network, serve


def echo():
    return json_body()


def form():
    return {"fields": request.form.to_dict(), "files": list(request.files)}


def broken():
    raise RuntimeError("it <broke>")


@pytest.fixture(scope="module")
def caller(make_caller):
    routes = {("POST", "/echo"): echo, ("POST", "/form"): form, ("GET", "/broken"): broken}
    routes |= {("POST", "/file"): files.read, ("POST", "/setup/upload"): files.upload}
    routes |= {("POST", "/list_directory"): files.list_directory}
    server = serve(make_app(routes), "127.0.0.1", 0)
    threading.Thread(target=server.run, daemon=True).start()
    return make_caller("127.0.0.1", server.effective_port)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/echo", "{}", {}, 415),
        ("POST", "/echo", "{", JSON, 400),
        ("POST", "/echo", "[1]", JSON, 400),
        ("POST", "/echo", '{"a": 1}', {"Content-Type": "application/json; charset=utf-8"}, 200),
        ("GET", "/echo", None, {}, 405),
        ("GET", "/nowhere", None, {}, 404),
        ("GET", "/broken", None, {}, 500),
        ("POST", "/broken", "{}", JSON, 405),
    ],
)
def test_status_codes_are_the_originals(caller, method, path, body, headers, status):
    got, kind, page = caller.send(method, path, body, headers)
    assert got == status
    if status != 200:
        assert kind == "text/html; charset=utf-8"
        assert f"<title>{status} ".encode() in page


def test_an_unexpected_error_is_told_without_markup(caller, caplog):
    assert b"RuntimeError: it &lt;broke&gt;" in caller.send("GET", "/broken")[2]
    assert "it <broke>" in caplog.text


def test_a_body_without_a_sane_length_is_refused(caller):
    assert caller.send("POST", "/echo", None, {**JSON, "Content-Length": "many"})[0] == 400
    length = {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(2**40)}
    assert caller.send("POST", "/form", None, length)[0] == 413


@pytest.mark.parametrize("data", [b"", b"text\r\n", b"\r\n--line-of-the-for", bytes(range(256)) * 300])
def test_an_uploaded_file_comes_back_byte_for_byte(caller, tmp_path, data):
    path = tmp_path / "new folder" / "file.bin"
    assert caller.upload(str(path), data) == (200, f"File Uploaded: {len(data)} bytes")
    assert path.read_bytes() == data
    assert caller.form("/file", f"file_path={path}") == (200, data)


def test_files_tell_what_is_missing(caller, tmp_path):
    assert caller.form("/file", "") == (400, {"error": "file_path is required"})
    assert caller.form("/file", f"file_path={tmp_path}/none") == (404, {"error": "File not found"})
    assert caller.form("/file", f"file_path={tmp_path}")[0] == 500
    assert caller.form("/setup/upload", "file_path=x")[0] == 400
    assert caller.upload("/proc/nowhere/file", b"x")[0] == 500
    assert caller.post("/list_directory", {}) == (400, {"error": "Missing 'path' parameter"})
    assert caller.post("/list_directory", {"path": "/none"})[0] == 400


def test_home_and_variables_are_replaced(caller, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FOLDER", str(tmp_path))
    (tmp_path / "a").write_text("A")
    assert caller.form("/file", "file_path=~/a") == (200, b"A")
    assert caller.form("/file", "file_path=$FOLDER/a") == (200, b"A")


def test_a_folder_is_listed_as_a_tree_without_going_round_in_circles(caller, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").touch()
    (tmp_path / "up").symlink_to(tmp_path)
    sub = {"type": "directory", "name": "sub", "children": [{"type": "file", "name": "file"}]}
    tree = {"type": "directory", "name": tmp_path.name, "children": [sub, {"type": "file", "name": "up"}]}
    assert caller.post("/list_directory", {"path": str(tmp_path)}) == (200, {"directory_tree": tree})


TABLE = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 010011AC 0003 0 0 0 00000000 0 0 0
eth0 000011AC 00000000 0001 0 0 0 0000FFFF 0 0 0
"""


def test_the_network_is_read_from_the_kernels_table(tmp_path):
    table = tmp_path / "route"
    table.write_text(TABLE)
    assert own_network(table) == (ipaddress.ip_network("172.17.0.0/16"), ipaddress.ip_address("172.17.0.1"))
    table.write_text(TABLE.splitlines()[0])
    assert own_network(table) == (None, None)
    assert own_network(tmp_path / "none") == (None, None)


def test_other_containers_of_the_network_are_refused(monkeypatch):
    network, gateway = ipaddress.IPv4Network("172.17.0.0/16"), ipaddress.IPv4Address("172.17.0.1")
    monkeypatch.setattr(app_module, "own_network", lambda: (network, gateway))
    monkeypatch.setattr(app_module, "own_address", lambda: ipaddress.IPv4Address("172.17.0.9"))

    def status(peer: str, **options) -> int:
        app = make_app({("GET", "/"): lambda: "hello"}, **options)
        return app.test_client().get("/", environ_base={"REMOTE_ADDR": peer}).status_code

    for welcome in ("172.17.0.1", "172.17.0.9", "127.0.0.1", "10.1.2.3"):
        assert status(welcome) == 200
    assert status("172.17.0.10") == 403
    assert status("172.17.0.10", siblings=True) == 200


def test_a_request_without_the_token_is_refused():
    client = make_app({("GET", "/"): lambda: "hello"}, token="secret").test_client()
    assert client.get("/").status_code == 401
    assert client.get("/", headers={"Authorization": "Bearer other"}).status_code == 401
    assert client.get("/", headers={"Authorization": "Bearer secret"}).status_code == 200
