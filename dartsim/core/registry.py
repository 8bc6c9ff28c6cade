"""Registries: the components that a configuration chooses by name, one registry per kind.

A component is a class registered under its kind and name. Adding one means adding one file to the package of its kind;
nothing else changes. For some kinds, a table names the component and holds its parameters:

    @register("router", "random")
    class RandomRouter(Router):
        class Parameters(ComponentSection):  # only if it has parameters
            ...

``rollout.routing.rule = "random"`` then chooses it. Backends are chosen by a plain setting
(``backend.desktops = "mine"``), and have no parameters. Faults are not chosen: every one that is registered counts.

Packages are imported when a name of their kind is first looked up, so importing this module or the schema loads no
component. Plug-ins add components in their own modules, which are imported before names are looked up: modules given by
``dartsim --plugin`` (never those that only a file names), and the entry points of installed distributions, either a
component in the group of its kind (``[project.entry-points."dartsim.router"]``) or, in the group ``dartsim.plugins``, a
module that registers several.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, ValidationInfo, create_model
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from dartsim.core.errors import ConfigError, did_you_mean
from dartsim.core.plugin_errors import PLUGIN_MODULES, describe
from dartsim.core.section import Section

PACKAGES: Mapping[str, str | None] = {
    "router": "dartsim.rollout.routers",
    "task_order": "dartsim.curation.rules",
    "attempts": "dartsim.curation.rules",
    "turn_limit": "dartsim.curation.rules",
    "admission": "dartsim.curation.rules",
    "batch": "dartsim.curation.rules",
    "selection": "dartsim.curation.rules",
    "advantage": "dartsim.trainer.advantages",
    "desktops": "dartsim.run.backends",
    "engine": "dartsim.run.backends",
    "learner": "dartsim.run.backends",
    "policy": "dartsim.run.policies",
    "fault": None,
}
"""Package with the built-in components of each kind, whose modules are all imported; None: only plug-ins have some."""

BUILT_IN_TABLES: Mapping[str, tuple[str, str]] = {
    "fault": ("dartsim.sim.faults.kinds", "KINDS"),
}
"""Module and variable with the built-in components of the kinds that are data rather than classes."""

METHODS: Mapping[str, tuple[str, str]] = {
    "router": ("Router", "pick"),
    "task_order": ("TaskOrder", "next"),
    "attempts": ("AttemptsRule", "size_at"),
    "turn_limit": ("TurnLimitRule", "limit"),
    "admission": ("", "blocked_by"),
    "batch": ("BatchRule", "order"),
    "selection": ("TurnSelection", "select"),
    "advantage": ("AdvantageRule", "advantages"),
    "policy": ("Policy", "act"),
}
"""The base class of each kind, and the method that components must define; a compiled base class cannot be abstract."""

PLUGINS = "dartsim.plugins"
"""Group of the entry points whose modules register components of other distributions."""

VARIABLE = "DARTSIM_PLUGINS"
"""Environment variable with the modules of plug-ins, separated by commas."""

TAG = "rule"
"""The key that names the component in its table."""

PARTIAL = "partial"
"""Validation context: the settings are a layer that is merged with others."""

C = TypeVar("C")


class ComponentSection(Section):
    """Parameters of a component that is chosen by name; the base of every component's ``Parameters``."""

    component: ClassVar[Callable[..., Any]]
    """The class that takes these parameters; set when it is registered."""

    rule: str = Field("", description="Which component.")

    def build(self, **context: Any) -> Any:
        """Return a new component with these parameters and its kind's other arguments."""
        return self.component(self, **context)

    def problems(self, place: str) -> Iterator[str]:
        """Yield one sentence for each combination of these parameters that cannot work."""
        return iter(())


class NamedComponent:
    """A component without parameters or state, named by a plain setting; each has one instance."""

    name: ClassVar[str]
    """What a configuration calls it; set when it is registered."""

    def __str__(self) -> str:
        return self.name


_components: dict[str, dict[str, Any]] = {kind: {} for kind in PACKAGES}
_loaded: set[str] = set()


def register(kind: str, name: str) -> Callable[[type[C]], type[C]]:
    """Register a component class under a name, which becomes the value of ``rule`` in its ``Parameters``.

    Args:
        kind: ``router``, ``task_order``, ``attempts``, ``turn_limit``, ``admission``, ``batch``, ``selection``,
            ``advantage``, ``policy``, ``desktops``, ``engine``, ``learner`` or ``fault``.
        name: What a configuration calls it.

    Raises:
        ValueError: If the kind does not exist or the name is taken.
        TypeError: If the class lacks the method that its kind calls.
    """
    known = _of_kind(kind)

    def add(component: type[C]) -> type[C]:
        if not component.__module__.startswith("dartsim."):
            taken = _load_built_in(kind)
            if name in taken:
                raise ValueError(
                    f"there is a built-in component of kind {kind} named {name!r}; rename {_path(component)}"
                )
            _check_method(kind, component)
            PLUGIN_MODULES.add(component.__module__)
        before = known.get(name)
        if before is not None and _path(before) != _path(component):
            raise ValueError(f"there are two components of kind {kind} named {name!r}: {before}, {component}")
        if issubclass(component, NamedComponent):
            component.name = name
        else:
            _set_parameters(component, name)
        known[name] = component
        return component

    return add


def _check_method(kind: str, component: type) -> None:
    """Refuse a class that lacks the method that its kind calls."""
    base, method = METHODS.get(kind, ("", ""))
    owner = next((owner for owner in component.__mro__ if method in vars(owner)), None)
    abstract = owner is None or (owner.__name__ == base and owner.__module__.startswith("dartsim."))
    if method and abstract:
        raise TypeError(f"{_path(component)} does not define the method {method}, which every {kind} has")


def _path(component: type) -> str:
    return f"{component.__module__}.{component.__qualname__}"


def _set_parameters(component: Any, name: str) -> None:
    base: type[ComponentSection] = getattr(component, "Parameters", ComponentSection)
    tag: Any = (Literal[name], Field(name, description=base.model_fields[TAG].description))
    make: Any = create_model
    section = make("Parameters", __base__=base, __module__=component.__module__, __doc__=component.__doc__, rule=tag)
    section.__qualname__ = f"{component.__qualname__}.Parameters"
    section.component = component
    component.Parameters = section


def names(kind: str) -> list[str]:
    """Return the names of all components of a kind, sorted."""
    _load(kind)
    return sorted(_of_kind(kind))


def built_in(kind: str) -> list[str]:
    """Return the names of the components of a kind that are part of dartsim, sorted."""
    return [name for name in names(kind) if _of_kind(kind)[name].__module__.startswith("dartsim.")]


def parameters(kind: str, name: str) -> type[ComponentSection]:
    """Return the parameters class of a component, which refers to the component's class as ``component``.

    Raises:
        KeyError: If no component has that name.
    """
    section: type[ComponentSection] = _lookup(kind, name).Parameters
    return section


@cache
def component(kind: str, name: str) -> Any:
    """Return the component that a plain setting names.

    Raises:
        KeyError: If no component has that name.
    """
    return _lookup(kind, name)()


def _lookup(kind: str, name: str) -> Any:
    if name not in _of_kind(kind):
        _load(kind)
    return _of_kind(kind)[name]


def _of_kind(kind: str) -> dict[str, Any]:
    if kind not in _components:
        raise ValueError(f"there is no kind of component {kind!r}; there are: {', '.join(_components)}")
    return _components[kind]


def _load(kind: str) -> None:
    """Import every module of a kind's package, and the plug-ins, once."""
    if kind in _loaded:
        return
    _load_built_in(kind)
    load_plugins()
    _loaded.add(kind)


@cache
def _load_built_in(kind: str) -> frozenset[str]:
    """Import every module of a kind's package; return the names of the built-in components."""
    if (built_in := PACKAGES[kind]) is None:
        module, variable = BUILT_IN_TABLES[kind]
        return frozenset(getattr(import_module(module), variable))
    package = import_module(built_in)
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(found.name)
    return frozenset(name for name, item in _of_kind(kind).items() if item.__module__.startswith("dartsim."))


@cache
def load_plugins() -> None:
    """Import plug-ins and register their components.

    Raises:
        ConfigError: If an installed one cannot be imported.
    """
    installed = entry_points()
    for kind, group in ((None, PLUGINS), *((kind, f"dartsim.{kind}") for kind in PACKAGES)):
        for plugin in installed.select(group=group):
            try:
                loaded = plugin.load()
            except Exception as error:
                raise ConfigError(
                    f"the plug-in {plugin.name} = {plugin.value!r} ({group}) of {_distribution(plugin)} cannot be "
                    f"imported: {error!r}; mend it, or uninstall it"
                ) from error
            if kind is not None:
                _register_entry(kind, plugin, loaded)
    for module in used_plugins():
        use_plugin(module)


def _register_entry(kind: str, plugin: EntryPoint, loaded: Any) -> None:
    """Register the class of an entry point under its name, unless its module has done so."""
    built_in = _load_built_in(kind)
    known = _of_kind(kind).get(plugin.name)
    if known is loaded:
        return
    where = f"the entry point {plugin.name} = {plugin.value!r} (dartsim.{kind}) of {_distribution(plugin)}"
    if not isinstance(loaded, type):
        raise ConfigError(f"{where} names {loaded!r}, wanted a class")
    if known is not None or plugin.name in built_in:
        raise ConfigError(f"{where} has the name of another component, {_path(known) if known else plugin.name}")
    if other := next((name for name, item in _of_kind(kind).items() if item is loaded), None):
        raise ConfigError(f"{where} is registered as {other!r}; give both the same name")
    register(kind, plugin.name)(loaded)


def _distribution(plugin: EntryPoint) -> str:
    return plugin.dist.name if plugin.dist else "an unknown distribution"


def use_plugin(module: str, named_by: str = "--plugin") -> None:
    """Import a module that registers components, here and in every process started from here.

    The module may be in the working directory.

    Raises:
        ConfigError: If it cannot be imported.
    """
    check_module_name(module, named_by)
    try:
        import_module_here(module)
    except ImportError as error:
        raise ConfigError(
            f"{named_by} {module}: {error}; wanted a module that Python can import: install it, or start in its folder"
        ) from None
    except Exception as error:
        raise ConfigError(f"{named_by} {module} cannot be imported: {describe(error)}") from error
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*used_plugins(), module]))


def used_plugins() -> list[str]:
    """Return the plug-in modules named to this process, without installed ones."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


_trusted: set[str] = set()


def trust_module(module: str) -> None:
    """Allow files to name a module, because the command line or a program has named it; it is imported later."""
    _trusted.add(module)


def check_plugins(tree: Mapping[str, Any], where: str, *, others: Iterable[str] = ()) -> None:
    """Refuse settings that name modules the user has not named: the file may be a stranger's.

    Args:
        tree: Settings, including ``plugin_modules``.
        where: Their file, for errors.
        others: Other modules that the settings name.

    Raises:
        ConfigError: If ``plugin_modules`` is not a list of modules, or a module is neither trusted nor imported yet.
    """
    modules = tree.get("plugin_modules", [])
    if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
        raise ConfigError(f"{where}plugin_modules = {modules!r}: wanted a list of modules' names")
    for module in modules:
        check_module_name(module, f"{where}plugin_modules:")
    known = _trusted.union(used_plugins())
    new = [module for module in modules if module not in sys.modules]  # imported ones run no code again
    if unknown := [module for module in dict.fromkeys([*new, *others]) if module not in known]:
        options = " ".join(f"--plugin {module}" for module in unknown)
        raise ConfigError(
            f"{where}names code that would be imported: {', '.join(unknown)}; no file is trusted with that. If you "
            f"trust this code, give {options}"
        )


def check_module_name(module: str, named_by: str) -> None:
    """Refuse text that is not a module's name.

    Raises:
        ConfigError: If it is not.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"{named_by} {module!r}: wanted a module's name, such as package.module")


def import_module_here(module: str) -> ModuleType:
    """Import a module named by the user, which may be in the working directory."""
    PLUGIN_MODULES.add(module)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return import_module(module)


def name_of(kind: str, component: type) -> str:
    """Return the name under which a class is registered.

    Raises:
        ConfigError: If it is not.
    """
    for name in names(kind):
        if _of_kind(kind)[name] is component:
            return name
    raise ConfigError(f'{component.__name__} is not registered; write @dartsim.register("{kind}", NAME) above it')


def _unknown(kind: str, name: Any) -> PydanticCustomError:
    known = names(kind)
    *first, last = map(repr, known)
    wanted = f"{', '.join(first)} or {last}" if first else last
    hint = did_you_mean(str(name), known).removeprefix("; ") or "a plug-in's comes with --plugin MODULE"
    return PydanticCustomError("unknown_component", f"{wanted} ({hint})")


@dataclass(frozen=True, slots=True)
class Named:
    """Marks a setting that names a component of a kind: ``Annotated[str, Named("desktops")]``."""

    kind: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"enum": names(self.kind), "type": "string"}

    def _validate(self, value: str) -> str:
        if value not in names(self.kind):
            raise _unknown(self.kind, value)
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """Marks a field of a section whose table chooses a component: ``Annotated[ComponentSection, Choice(...)]``."""

    kind: str
    default: str

    def __call__(self) -> Any:
        """Return the default component's parameters, as the ``default_factory`` of the field."""
        return self.section({})()

    def section(self, table: Any, *, partial: bool = False) -> type[ComponentSection]:
        """Return the parameters class for a table, by its ``rule``; for a partial table without one, by its keys.

        Raises:
            KeyError: If no component has that name.
        """
        if partial and TAG not in table:
            return max(self.sections().values(), key=lambda section: len(table.keys() & section.model_fields.keys()))
        name = table.get(TAG, self.default) if isinstance(table, Mapping) else self.default
        return parameters(self.kind, name)

    def sections(self) -> dict[str, type[ComponentSection]]:
        """Return the parameters class of each component, by name; the default first."""
        ordered = sorted(names(self.kind), key=lambda name: (name != self.default, name))
        return {name: parameters(self.kind, name) for name in ordered}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = core_schema.with_info_before_validator_function(self._validate, core_schema.is_instance_schema(source))
        serialize = core_schema.plain_serializer_function_ser_schema(_dump, info_arg=True)
        return {**inner, "serialization": serialize}

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(section.__pydantic_core_schema__) for section in self.sections().values()]}

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, Mapping):
            return value
        try:
            section = self.section(value, partial=info.context == PARTIAL)
        except (KeyError, TypeError):
            name = value[TAG]
            detail = InitErrorDetails(type=_unknown(self.kind, name), loc=(TAG,), input=name)
            raise ValidationError.from_exception_data(self.kind, [detail]) from None
        return section.model_validate(dict(value), context=info.context)


def _dump(section: ComponentSection, info: Any) -> dict[str, Any]:
    return section.model_dump(mode=info.mode)
