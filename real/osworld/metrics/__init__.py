"""Metrics: what turns a result into a score. A small set of our own, which needs no evaluator process.

Names and meaning are OSWorld's; ``desktop-env`` has the others (``real.osworld.evaluator``). A metric is called with
the result, the expected value if the task has one, and the task's options by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from dartsim.real.osworld.known import LATER_METRICS, METRICS
from dartsim.real.osworld.metrics import apps, tables, text, tree, values

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of our own.

    Attributes:
        run: Returns the score.
        needs: Modules beyond the standard library.
        supports: Whether it knows what these options ask for; by default whether it takes them.
    """

    run: Callable[..., float]
    needs: tuple[str, ...] = ()
    supports: Callable[[Options], bool] | None = None

    def takes(self, options: Options) -> bool:
        """Whether it can be run with these options."""
        if self.supports is not None:
            return self.supports(options)
        taken = inspect.signature(self.run).parameters.values()
        return set(options) <= {each.name for each in taken if each.kind is each.KEYWORD_ONLY}

    def missing(self) -> list[str]:
        """Return the modules that it needs and that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def _json_only(options: Options) -> bool:
    return set(options) <= {"is_yaml"} and not options.get("is_yaml")


_PLAIN: tuple[Callable[..., float], ...] = (
    values.exact_match,
    values.match_in_list,
    values.is_in_list,
    values.literal_match,
    values.fuzzy_match,
    values.check_include_exclude,
    values.is_extension_installed,
    values.is_in_vm_clickboard,
    values.is_expected_url_pattern_match,
    values.check_direct_json_object,
    values.check_gnome_favorite_apps,
    values.is_utc_0,
    values.check_text_enlarged,
    values.check_moved_jpgs,
    values.is_vlc_fullscreen,
    text.compare_text_file,
    text.diff_text_file,
    text.compare_config,
    text.compare_answer,
    text.file_contains,
    text.check_list,
    text.check_line_number,
    text.compare_terminal_and_txt,
    text.compare_python_pure_text,
    text.check_json_settings,
    text.check_json_keybindings,
    text.is_included_all_json_objects,
    text.run_sqlite3,
    tables.compare_csv,
    tables.check_csv,
    apps.check_global_key_play_pause,
    apps.check_qt_slider_colours,
    apps.is_vlc_recordings_folder,
    apps.check_config_status,
    apps.check_thunderbird_prefs,
    apps.check_thunderbird_filter,
)

NATIVE: Mapping[str, Metric] = {
    **{run.__name__: Metric(run) for run in _PLAIN},
    "check_json": Metric(text.check_json, supports=_json_only),
    "compare_table": Metric(tables.compare_table, needs=("openpyxl",), supports=tables.supports_table),
    "check_accessibility_tree": Metric(tree.check_accessibility_tree, needs=("lxml",)),
    **{
        f"check_{option.replace('-', '_')}": Metric(
            apps.vlc_check(option, f"expected_{option.replace('-', '_')}", default)
        )
        for option, default in (
            ("qt-bgcone", "1"),
            ("qt-max-volume", "125"),
            ("qt-minimal-view", "0"),
            ("one-instance-when-started-from-file", "1"),
            ("play-and-exit", "0"),
        )
    },
}
"""Metrics of our own, by their name in task files."""

KNOWN = METRICS | LATER_METRICS | frozenset(NATIVE)
