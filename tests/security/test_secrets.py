"""Secrets of the environment reach no log, configuration, report, check, status or recorder."""

from __future__ import annotations

import gzip
import json
import logging

import pytest

from dartsim.cli.console import hide_secrets_in_logs
from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.core.secrets import HIDDEN, has_secret, is_secret_name, keep_secret, redact, redact_tree, secret_settings
from dartsim.run.backends.vllm import VllmEngines

SECRETS = {
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWx",
    "DB_PASSWORD": "correct-horse-battery",
    "VLLM_API_KEY": "vllm-key-0123456789",
    "OPENAI_API_KEY": "sk-abcdefghijklmnop1234",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-K7MDENG",
}
SMALL = ("dart", "--hours", "0.2", "--set", "rollout.num_envs=4", "--set", "rollout.num_workers=1")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch, tmp_path):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    before = logging.lastResort
    yield
    logging.lastResort = before


def leaks(text):
    return [name for name, value in SECRETS.items() if value in text]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://dart:hunter22@db.example.org/runs", "hunter22"),
        ("tcp://:p4ssw0rd@10.0.0.1:2376", "p4ssw0rd"),
        ("https://user:pa%20ss@host/x", "pa%20ss"),
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("curl -H 'authorization: basic dXNlcjpwYXNz'", "dXNlcjpwYXNz"),
        ("serve --api-key topsecret99 --port 1", "topsecret99"),
        ("serve --api-key=topsecret99", "topsecret99"),
        ("HF_TOKEN=verysecretvalue", "verysecretvalue"),
        ("password: verysecretvalue", "verysecretvalue"),
        ("http://dart:pa/ss'w@rd1@db/runs", "pa/ss'w@rd1"),
        ("https://dart@db/runs?%70assword=hunter22;a=b", "hunter22"),
        ("https://host:8000/v1?api_key=hunter22", "hunter22"),
        ("host=db user=dart password='hun ter22' dbname=runs", "hun ter22"),
        ("token ghp_abcdefghijklmnopqrstuvwx", "ghp_abcdefghijklmnopqrstuvwx"),
        ("key hf_ZyXwVuTsRqPoNmLkJi", "hf_ZyXwVuTsRqPoNmLkJi"),
        (f"something quotes {SECRETS['DB_PASSWORD']} in the middle", SECRETS["DB_PASSWORD"]),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text, secret):
    found = redact(text)
    assert secret not in found
    assert HIDDEN in found


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1",
        "3000 prompt tokens, max_tokens=512, num_tokens: 7",
        "http://127.0.0.1:8000/a@b, http://[::1]:80/c@d and {'a':'http://h:80','b':'me@x'}",
        "http://dart@db/runs?sslmode=require&application_name=dart",
        "ssh://user@host:22",
        "the tokenizer has 151,936 tokens",
        "docs/reference.md#trainer_starved",
        "trainer.mismatch_bound = 0.1",
    ],
)
def test_what_is_none_is_left_alone(text):
    assert redact(text) == text


def test_a_secret_is_hidden_as_a_url_spells_it(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "ho/rse +stap@le")
    assert redact("refused: u ho%2Frse%20%2Bstap%40le, ho%2Frse+%2Bstap%40le") == f"refused: u {HIDDEN}, {HIDDEN}"
    keep_secret("of no known form")
    assert redact("key of no known form") == f"key {HIDDEN}"


def test_names_of_secrets_are_known():
    assert all(is_secret_name(name) for name in [*SECRETS, "github_token", "DB_PASSWORD", "client_secret", "apikey"])
    assert not any(is_secret_name(name) for name in ("max_tokens", "tokenizer", "PATH", "peak_tokens_per_second"))


def test_trees_lose_their_secrets_and_nothing_else():
    tree = {
        "command": ["vllm", "--api-key", "abc", "--port", "1"],
        "environment": {"HF_TOKEN": "x", "OMP_NUM_THREADS": "1"},
        "max_tokens": 512,
    }
    assert redact_tree(tree) == {
        "command": ["vllm", "--api-key", HIDDEN, "--port", "1"],
        "environment": {"HF_TOKEN": HIDDEN, "OMP_NUM_THREADS": "1"},
        "max_tokens": 512,
    }


@pytest.mark.parametrize(
    "setting",
    [
        'vllm.addresses=["http://me:hunter22@host:8000"]',
        'tasks.folder="https://me:hunter22@host/tasks"',
        'trainer.fsdp.folder="hf_AbCdEfGhIjKlMnOpQrSt"',
        'vllm.flags=["--api-key", "hunter22"]',
        'gym.arguments={password="hunter22"}',
        'ray.address="ray://me:hunter22@host:10001"',
    ],
)
def test_a_configuration_that_holds_a_secret_is_refused_and_not_quoted(dartsim, capsys, setting):
    with pytest.raises(ConfigError, match="holds a password or a token") as caught:
        load("dart", overrides=[setting])
    assert "hunter22" not in str(caught.value)
    assert "hf_Ab" not in str(caught.value)
    assert dartsim("run", "dart", "--set", setting) == 2
    said = "".join(capsys.readouterr())
    assert "hunter22" not in said


def test_places_of_secrets_in_a_configuration_are_named():
    tree = {"a": {"b": ["x", "http://u:pw@h"]}, "c": "http://u@h", "d": 3}
    assert secret_settings(tree) == ["a.b"]
    assert not has_secret("http://127.0.0.1:8000")


def test_nothing_that_a_run_writes_or_says_holds_a_secret(dartsim, capsys, tmp_path):
    folder = tmp_path / "run"
    assert dartsim("run", *SMALL, "--out", str(folder), "--json", str(tmp_path / "figures.json")) == 18
    assert dartsim("show", str(folder), "--json", "-") == 0
    said = "".join(capsys.readouterr())
    assert leaks(said) == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"config.toml", "summary.json", "status.json", "segments.bin", "run.db", "figures.json"} <= {
        path.name for path in files
    }
    for path in files:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        assert leaks(data.decode("latin-1")) == [], path.name


def test_a_check_names_no_secret(dartsim, monkeypatch, capsys, tmp_path):
    process = {
        "name": "engine-0",
        "listens": "port 1",
        "environment": {"HF_TOKEN": SECRETS["HF_TOKEN"]},
        "command": ["--api-key", "abc123secret", f"--url=http://u:{SECRETS['DB_PASSWORD']}@h/d"],
    }
    monkeypatch.setattr(VllmEngines, "plan", lambda *_: {"what": "vLLM", "processes": [process]})
    assert dartsim("check", "tiny", "--backend", "mock", "--workers", "vllm", "--json", "plan.json") == 1
    said = "".join(capsys.readouterr()) + (tmp_path / "plan.json").read_text()
    assert leaks(said) == []
    assert "abc123secret" not in said
    shown = json.loads((tmp_path / "plan.json").read_text())["engines"]["processes"][0]
    assert shown["environment"] == {"HF_TOKEN": HIDDEN}


def test_logs_and_crashes_quote_no_secret(dartsim, monkeypatch, capsys):
    def crash(*arguments, **options):
        logging.getLogger("real.somewhere").warning("refused: %s", SECRETS["HF_TOKEN"])
        raise RuntimeError(f"http://dart:{SECRETS['DB_PASSWORD']}@db refused")

    handlers, propagate = logging.getLogger().handlers[:], logging.getLogger("real.somewhere")
    for handler in handlers:
        logging.getLogger().removeHandler(handler)  # pytest's own
    try:
        monkeypatch.setattr("dartsim.config.load", crash)
        assert propagate.propagate
        assert dartsim("run", *SMALL) == 1
    finally:
        for handler in handlers:
            logging.getLogger().addHandler(handler)
    said = "".join(capsys.readouterr())
    assert leaks(said) == []
    assert "Traceback" in said, "all else is told"
    assert "http://dart:***@db refused" in said


def test_what_is_logged_goes_where_python_would_write_it(capsys):
    hide_secrets_in_logs()
    record = logging.LogRecord("a", logging.WARNING, "f", 1, "key %s", (SECRETS["OPENAI_API_KEY"],), None)
    assert logging.lastResort is not None
    assert logging.lastResort.format(record) == f"key {HIDDEN}"
    assert logging.lastResort.level == logging.WARNING
    logging.lastResort.handle(record)
    assert capsys.readouterr().err == f"key {HIDDEN}\n"


def test_a_sandbox_gets_nothing_of_the_environment():
    from dartsim.real.scoring.container import ENVIRONMENT

    assert not [name for name in ENVIRONMENT if is_secret_name(name)]
    assert leaks(str(ENVIRONMENT)) == []


def test_containers_get_nothing_of_the_environment():
    from dartsim.config.schema import DesktopConfig
    from dartsim.real.containers.spec import ContainerSpec, create_arguments
    from dartsim.real.desktop.images import desktop_spec

    made = create_arguments(
        desktop_spec(DesktopConfig(variant="apps", image="ours")), name="one", labels={}, bind_address="127.0.0.1"
    )
    assert leaks(str(made)) == []
    assert (
        create_arguments(ContainerSpec(image="x"), name="n", labels={}, bind_address="127.0.0.1").get("environment", {})
        == {}
    )
