"""Typed fields as the options of a torch module: like a dataclass, but calls torch's `__init__` first."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, Field, field
from inspect import Parameter, Signature
from typing import Any, ClassVar, Literal, get_args, get_origin

import torch
from typing_extensions import dataclass_transform

from rankstruct.lists import knows_cutoffs
from rankstruct.losses.checks import check_choice, check_size

_FIELDS = "_own_fields"


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class WithFields(torch.nn.Module):
    """A torch module whose typed fields, declared by subclasses, are the constructor's arguments; it calls `setup()` last."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _declare_fields(cls)
        cls.__init__ = _refusing_cutoffs(vars(cls).get("__init__") or _initializer(cls))  # type: ignore[method-assign]


def _declare_fields(kind: type) -> None:
    """Record the fields that a class adds; defaults are removed from the class, so that buffers can have these names."""
    module = vars(sys.modules.get(kind.__module__, object))
    fields, keyword = {}, False
    for name, hint in inspect.get_annotations(kind).items():
        if isinstance(hint, str):
            with suppress(Exception):  # a name not defined yet; the text suffices for a signature
                hint = eval(hint, dict(module), dict(vars(kind)))
        if hint is KW_ONLY:
            keyword = True
        elif not (name.startswith("_") or get_origin(hint) is ClassVar or str(hint).startswith("ClassVar")):
            default = vars(kind).get(name, Parameter.empty)
            if isinstance(default, Field):  # field(init=False, default=...) fixes an option of a base
                setattr(kind, name, default.default)
                continue
            order = Parameter.KEYWORD_ONLY if keyword else Parameter.POSITIONAL_OR_KEYWORD
            fields[name] = Parameter(name, order, default=default, annotation=hint)
            if default is not Parameter.empty:
                delattr(kind, name)
    setattr(kind, _FIELDS, fields)


def fields_of(kind: type) -> dict[str, Parameter]:
    """The options of a class, in the order of its signature: those of its bases first, keyword-only ones last.

    An option that a subclass overrides with an attribute or property is removed.
    """
    found: dict[str, Parameter] = {}
    for base in reversed(kind.__mro__):
        found = {name: each for name, each in found.items() if name not in vars(base)}
        for name, each in vars(base).get(_FIELDS, {}).items():
            found[name] = each if name not in found else each.replace(kind=found[name].kind)
    last = [each for each in found.values() if each.kind is Parameter.KEYWORD_ONLY]
    return {
        each.name: each for each in sorted([*found.values()], key=lambda each: (each in last, each.name == "reduction"))
    }


def _initializer(kind: type) -> Callable[..., None]:
    """The `__init__` of a class with fields: calls torch's, checks and sets the fields, and calls `setup()`."""
    fields = fields_of(kind)
    choices = {
        name: get_args(each.annotation) for name, each in fields.items() if get_origin(each.annotation) is Literal
    }
    itself = Parameter("self", Parameter.POSITIONAL_ONLY)
    signature = Signature([itself, *fields.values()])

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        try:
            bound = signature.bind(self, *given, **named)
        except TypeError as error:
            raise TypeError(f"{kind.__name__}() {error}") from None
        torch.nn.Module.__init__(self)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            if name in choices:
                check_choice(name, value, choices[name])
            check_size(name, value)
            setattr(self, name, value)
        self.setup()

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__annotations__ = {name: each.annotation for name, each in fields.items()} | {"return": None}
    __init__.__module__, __init__.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    return __init__


def _refusing_cutoffs(begin: Callable[..., None]) -> Callable[..., None]:
    """Make an `__init__` with a measure, and without `**kwargs`, explain how to pass a cut-off if it gets `k=`."""
    takes = inspect.signature(begin).parameters
    other = any(each.kind is Parameter.VAR_KEYWORD for each in takes.values())
    return begin if other or "measure" not in takes else knows_cutoffs(begin)
