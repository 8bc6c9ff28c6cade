"""What tasks need of their desktops, read from their files."""

import pytest

pytest.importorskip("httpx")

from dartsim.core.types import Task
from dartsim.real.osworld.fetch import Downloads
from dartsim.real.osworld.needs import DesktopOffer, internet_needs, missing_needs, offer_of

GOOD = {
    "func": "exact_match",
    "result": {"type": "vm_command_line", "command": "say"},
    "expected": {"type": "rule", "rules": {"expected": "a"}},
}
APPS = offer_of("apps")


def task(*config, evaluator=GOOD, **spec):
    return Task("t", "do it", "os", {"config": list(config), "evaluator": evaluator, **spec})


def opens(*urls):
    return {"type": "chrome_open_tabs", "parameters": {"urls_to_open": list(urls)}}


def runs(command, kind="execute", **more):
    return {"type": kind, "parameters": {"command": command, **more}}


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        (task(related_apps=["vscode"]), ["Visual Studio Code"]),
        (task(runs(["code"], "launch")), ["Visual Studio Code"]),
        (task(runs("A=1 /usr/bin/code; sudo -S snap list")), ["Visual Studio Code", "snap"]),
        (task(runs("echo code")), []),
        (task(related_apps=["libreoffice calc", "chrome", "os"]), []),
        (task(evaluator=GOOD | {"result": {"type": "vm_command_line", "command": "systemctl status"}}), ["systemd"]),
        (task({"type": "login", "parameters": {}}), ["it signs in to a Google account"]),
        (task(evaluator=GOOD | {"expected": {"type": "googledrive_file"}}), ["it reads the files of a Google account"]),
    ],
)
def test_applications_and_accounts_that_are_missing(given, lacks):
    assert [need.detail for need in missing_needs(given, APPS)] == lacks


def test_osworlds_machine_has_every_application_and_our_small_images_have_none():
    given = task(related_apps=["chrome", "vscode"])
    assert missing_needs(given, DesktopOffer()) == ()
    assert [need.detail for need in missing_needs(given, offer_of("vm"))] == ["Visual Studio Code", "Chrome"]


@pytest.mark.parametrize(
    ("given", "needs"),
    [
        (task(), []),
        (
            task({"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://a.org/b", "c.com"]}}),
            ["a.org", "c.com"],
        ),
        (task(opens("http://localhost:80/", "chrome://settings")), []),
        (task(evaluator=GOOD | {"expected": {"type": "rule", "rules": {"url": "https://a.org"}}}), ["a.org"]),
        (task(evaluator=GOOD | {"expected": {"type": "rule", "goto_prefix": "https://www."}}), []),
        (task(runs("echo {CLIENT_PASSWORD} | sudo -S apt install jq -y")), []),
        (task(runs("sudo apt-get install -y gparted")), ["gparted"]),
        (task(runs(["pip", "install", "/home/user/a.whl"])), []),
        (task(runs(["code", "--install-extension", "ms.python"])), ["ms.python"]),
        (task(proxy=True), ["OSWorld runs it behind a proxy"]),
    ],
)
def test_what_needs_the_internet(given, needs):
    assert [need.detail for need in internet_needs(given, APPS)] == needs


def test_a_file_that_was_fetched_needs_no_internet(tmp_path):
    url = "https://a.org/b.xlsx"
    given = task({"type": "download", "parameters": {"files": [{"url": url, "path": "/b"}]}})
    offer = DesktopOffer(cache=tmp_path)
    assert [str(need) for need in internet_needs(given, offer)] == ["downloads files: a.org"]
    (tmp_path / Downloads.name(url)).touch()
    assert internet_needs(given, offer) == ()
