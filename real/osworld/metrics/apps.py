"""Metrics of applications' settings files: VLC, GIMP, Thunderbird. Names and meaning are OSWorld's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dartsim.real.osworld.metrics.match import matches, record_matches
from dartsim.real.osworld.metrics.text import read

Rules = Mapping[str, Any]
Result = str | None

_SLIDER_COLOURS = "153;210;153;20;210;20;255;199;15;245;39;29"
_DARK = 100
_PREF = re.compile(r'user_pref\("((?:[^"\\]|\\.)+)", (.+)\);')
_CONDITION = re.compile(r'\b(?:AND|OR) \([\w ]+,[\w \']+,(?:"[^"]+"|[^)]+)\)|\bALL\b')


def vlc_option(result: Result, name: str, default: str) -> str | None:
    """Return an option of VLC; None if there is no settings file. What is commented out has its default there."""
    text = read(result)
    if text is None:
        return None
    found = re.findall(rf"^#?\s*{re.escape(name)}=(.*)$", text, re.M)
    return found[-1].strip() if found else default


def vlc_check(name: str, key: str, default: str) -> Callable[[Result, Rules], float]:
    """Return the metric whether VLC's option is what the rule's ``key`` says."""

    def check(result: Result, rules: Rules) -> float:
        return float(vlc_option(result, name, default) == str(rules[key]))

    return check


def check_global_key_play_pause(result: Result, rules: Rules) -> float:
    """Whether VLC has a global key for play and pause (1) or has none (0)."""
    found = vlc_option(result, "global-key-play-pause", "")
    return float(found is not None and str(int(bool(found))) == str(rules["expected_global_key_play_pause"]))


def check_qt_slider_colours(result: Result, rules: Rules) -> float:
    """Whether the colours of VLC's slider are those of the rule, or all nearly black."""
    found = vlc_option(result, "qt-slider-colours", _SLIDER_COLOURS)
    if found is None:
        return 0.0
    if rules["type"] == "match":
        return float(found == rules["expected_qt_slider_colours"])
    parts = found.split(";")
    return float(all(part.strip().isdigit() and int(part) < _DARK for part in parts))


def is_vlc_recordings_folder(result: Result, rules: Rules) -> float:
    """Whether VLC records into the rule's folder."""
    text = read(result) or ""
    found = re.search(r"^[^#\n]*input-record-path\s*=(.*)$", text, re.M)
    return float(found is not None and found[1].split("=")[-1].strip() == rules["recording_file_path"])


def check_config_status(result: Result, rules: Rules) -> float:
    """Whether a setting of GIMP, ``(key … value)``, has the rule's value."""
    keys = rules["key"] if isinstance(rules["key"], list) else [rules["key"]]
    for line in (read(result) or "").splitlines():
        words = line.strip().lstrip("(").rstrip(")\n").split()
        if line.startswith("#") or not words:
            continue
        if words[: len(keys)] == keys and words[-1] == rules["value"]:
            return 1.0
    return 0.0


def check_thunderbird_prefs(result: Result, rules: Rules) -> float:
    """Whether preferences of Thunderbird are as ``expect`` and not as ``unexpect`` says."""
    text = read(result)
    if text is None:
        return 0.0
    prefs: dict[str, Any] = {}
    for line in text.splitlines():
        found = _PREF.fullmatch(line.strip())
        if found:
            try:
                prefs[found[1]] = json.loads(found[2])
            except ValueError:
                continue
    wanted = all(key in prefs and matches(prefs[key], rule) for key, rule in rules.get("expect", {}).items())
    refused = any(key in prefs and matches(prefs[key], rule) for key, rule in rules.get("unexpect", {}).items())
    return float(wanted and not refused)


def check_thunderbird_filter(result: Result, rules: Rules) -> float:
    """Whether Thunderbird's filters include each of ``expect`` and none of ``unexpect``."""
    text = read(result)
    if text is None:
        return 0.0
    filters: list[dict[str, Any]] = []
    for line in text.splitlines():
        key, _, value = line.partition("=")
        value = value.strip().removeprefix('"').removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
        if key == "name":
            filters.append({"name": value})
        elif filters and key in ("enabled", "type", "action", "actionValue"):
            filters[-1][key] = value
        elif filters and key == "condition":
            filters[-1][key] = _CONDITION.findall(value)
    whole = [each for each in filters if "condition" in each]
    wanted = all(any(record_matches(rule, each) for each in whole) for rule in rules.get("expect", ()))
    refused = any(record_matches(rule, each) for each in whole for rule in rules.get("unexpect", ()))
    return float(wanted and not refused)
