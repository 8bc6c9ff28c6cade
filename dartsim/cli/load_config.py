"""What ``--profile`` names: a profile of desktops, a file that ``dartsim measure`` wrote, or a run's folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.config import Config


def load_with_profile(
    file: Path | None = None,
    *,
    preset_name: str | None = None,
    default: str | None = None,
    workload_name: str | None = None,
    profile: str | None = None,
    overrides: Iterable[str] = (),
) -> Config:
    """Return the resolved configuration with what a profile names laid over it, below the overrides.

    Args:
        file: As ``dartsim.config.load`` takes it.
        preset_name: What was asked to build on.
        default: What is built on where nothing was asked: no file, no preset, and not a run's own configuration.
        workload_name: As ``load`` takes it.
        profile: A named profile of desktops; a file with measured settings; a run's folder: what was measured of it,
            or else, where there is no file, its configuration.
        overrides: As ``load`` takes them.

    Raises:
        ConfigError: As ``load``, or if the profile is none of these.
    """
    from dartsim.cli.measure import PROFILE
    from dartsim.config import load
    from dartsim.observe.rundir import CONFIG
    from dartsim.sim.env_profiles import PROFILES

    measured: Path | None = None
    given = list(overrides)
    if profile is not None:
        path = Path(profile)
        if profile in PROFILES:
            given.insert(0, f"cluster.env.profile={profile}")
        elif profile and path.is_file():
            measured = path
        elif profile and (path / PROFILE).is_file():
            measured = path / PROFILE
        elif profile and file is None and (path / CONFIG).is_file():
            file = path / CONFIG
        else:
            raise ConfigError(
                f"there is no profile, run or file {profile!r}; profiles: {', '.join(PROFILES)}; a run's folder, or a "
                "profile.toml that `dartsim measure` wrote"
            )
    if file is None and preset_name is None:
        preset_name = default
    return load(file, preset_name=preset_name, workload_name=workload_name, profile=measured, overrides=given)
