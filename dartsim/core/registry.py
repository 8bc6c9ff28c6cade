"""Registries: the components that a configuration chooses by name, one registry per kind.

A component is a class registered under its kind and name. Adding one means adding one file to the package of its kind;
nothing else changes. For some kinds, a table names the component and holds its parameters:

    @register("router", "random")
    class RandomRouter(Router):
        class Parameters(ComponentSection):  # only if it has parameters
            ...

``rollout.routing.rule = "random"`` then chooses it. Backends are chosen by a plain setting
(``backend.desktops = "mine"``), and have no parameters. Faults are not chosen: every one that is registered counts.

Packages are imported when a name of their kind is first looked up, so importing the schema loads no component. Plug-ins
add components in their own modules (``dartsim.core.plugins``).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, create_model
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from dartsim.core.errors import ConfigError, did_you_mean
from dartsim.core.plugin_errors import PLUGIN_MODULES
from dartsim.core.plugins import load_plugins
from dartsim.core.section import Section


class Kind(NamedTuple):
    """A kind of component."""

    package: str
    """Package of the built-in components, whose modules are all imported."""
    base: str = ""
    """Name of the base class; a compiled base class cannot be abstract."""
    method: str = ""
    """The method that components must define."""
    table: str = ""
    """Variable of the package with the built-in components, if these are data rather than classes."""


KINDS: Mapping[str, Kind] = {
    "router": Kind("dartsim.rollout.routers", "Router", "pick"),
    "lending": Kind("dartsim.rollout.lending", "LendingRule", "recall_at"),
    "task_order": Kind("dartsim.curation.rules", "TaskOrder", "next"),
    "attempts": Kind("dartsim.curation.rules", "AttemptsRule", "size_at"),
    "turn_limit": Kind("dartsim.curation.rules", "TurnLimitRule", "limit"),
    "admission": Kind("dartsim.curation.rules", "", "blocked_by"),
    "batch": Kind("dartsim.curation.rules", "BatchRule", "order"),
    "selection": Kind("dartsim.curation.rules", "TurnSelection", "select"),
    "advantage": Kind("dartsim.trainer.advantages", "AdvantageRule", "advantages"),
    "desktops": Kind("dartsim.run.backends"),
    "engine": Kind("dartsim.run.backends"),
    "learner": Kind("dartsim.run.backends"),
    "policy": Kind("dartsim.run.policies", "Policy", "act"),
    "fault": Kind("dartsim.sim.faults.kinds", table="KINDS"),
}

TAG = "rule"
"""The key that names the component in its table."""

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


_components: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}


def register(kind: str, name: str) -> Callable[[type[C]], type[C]]:
    """Register a component class under a name, which becomes the value of ``rule`` in its ``Parameters``.

    Args:
        kind: ``router``, ``lending``, ``task_order``, ``attempts``, ``turn_limit``, ``admission``, ``batch``,
            ``selection``, ``advantage``, ``policy``, ``desktops``, ``engine``, ``learner`` or ``fault``.
        name: What a configuration calls it.

    Raises:
        ValueError: If the kind does not exist or the name is taken.
        TypeError: If the class lacks the method that its kind calls.
    """
    known = _of_kind(kind)

    def add(component: type[C]) -> type[C]:
        if not component.__module__.startswith("dartsim."):
            if name in _load_built_in(kind):
                raise ValueError(f"{kind} {name!r} is built in; rename {_path(component)}")
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
    _, base, method, _ = KINDS[kind]
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
    _load_built_in(kind)
    load_plugins()
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
        names(kind)
    return _of_kind(kind)[name]


def _of_kind(kind: str) -> dict[str, Any]:
    if kind not in _components:
        raise ValueError(f"there is no kind of component {kind!r}; there are: {', '.join(_components)}")
    return _components[kind]


@cache
def _load_built_in(kind: str) -> frozenset[str]:
    """Import every module of a kind's package; return the names of the built-in components."""
    package = import_module(KINDS[kind].package)
    if table := KINDS[kind].table:
        return frozenset(getattr(package, table))
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(found.name)
    return frozenset(name for name, item in _of_kind(kind).items() if item.__module__.startswith("dartsim."))


def name_of(kind: str, component: type) -> str:
    """Return the name under which a class is registered.

    Raises:
        ConfigError: If it is not.
    """
    if found := next((name for name in names(kind) if _of_kind(kind)[name] is component), None):
        return found
    raise ConfigError(f'{component.__name__} is not registered; write @dartsim.register("{kind}", NAME) above it')


def _unknown(kind: str, name: Any) -> PydanticCustomError:
    known = names(kind)
    hint = did_you_mean(str(name), known).removeprefix("; ") or "a plug-in's comes with --plugin MODULE"
    return PydanticCustomError("unknown_component", f"one of {', '.join(map(repr, known))} ({hint})")


@dataclass(frozen=True, slots=True)
class Named:
    """Marks a setting that names a component of a kind: ``Annotated[str, Named("desktops")]``."""

    kind: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"enum": names(self.kind), "type": "string"}

    def _validate(self, value: str) -> str:
        if value in names(self.kind):
            return value
        raise _unknown(self.kind, value)


@dataclass(frozen=True, slots=True)
class Choice:
    """Marks a field of a section whose table chooses a component: ``Annotated[ComponentSection, Choice(...)]``."""

    kind: str
    default: str

    def __call__(self) -> Any:
        """Return the default component's parameters, as the ``default_factory`` of the field."""
        return parameters(self.kind, self.default)()

    def sections(self) -> dict[str, type[ComponentSection]]:
        """Return the parameters class of each component, by name; the default first."""
        ordered = sorted(names(self.kind), key=lambda name: (name != self.default, name))
        return {name: parameters(self.kind, name) for name in ordered}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = core_schema.no_info_before_validator_function(self._validate, core_schema.is_instance_schema(source))
        dump = core_schema.plain_serializer_function_ser_schema(
            lambda section, info: section.model_dump(mode=info.mode), info_arg=True
        )
        return {**inner, "serialization": dump}

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(section.__pydantic_core_schema__) for section in self.sections().values()]}

    def _validate(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        name = value.get(TAG, self.default)
        try:
            section = parameters(self.kind, name)
        except (KeyError, TypeError):
            detail = InitErrorDetails(type=_unknown(self.kind, name), loc=(TAG,), input=name)
            raise ValidationError.from_exception_data(self.kind, [detail]) from None
        return section.model_validate(dict(value))
