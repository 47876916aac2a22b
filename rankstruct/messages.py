"""Error messages: one line each, with suggestions for unknown names, and arguments as they are typed where one is wrong."""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from numbers import Integral
from typing import Any, NamedTuple, NoReturn, TypeVar

_Called = TypeVar("_Called", bound=Callable[..., Any])

_LONGEST = 600
_BITS = 256  # of an integer, above which only its size is told
_LIBRARIES = ("rankstruct", "torch", "sklearn")  # on the way from a caller to a warning


def _as_argument(argument: str, value: Any) -> str | None:
    return f"{argument}={'' if value is None else repr(value)}"


#: How an argument with a value, or None for any, is typed: as that of a function, or as an option of the command that runs, which
#: may have no such option: None.
SPELLING: ContextVar[Callable[[str, Any], str | None]] = ContextVar("spelling", default=_as_argument)


def shortened(value: object, most: int = 60) -> str:
    """`repr(value)` for a message, cut if it is long; of a very large integer, which Python may refuse to write, the size.

    Args:
        value: what came.
        most: characters of text; of other values, this or 100.

    >>> shortened("qid:1"), len(shortened("x" * 10_000)), shortened(10**5000)
    ("'qid:1'", 65, 'an integer of 16610 bits')
    """
    if isinstance(value, Integral) and int(value).bit_length() > _BITS:
        return f"an integer of {int(value).bit_length()} bits"
    if isinstance(value, str | bytes) and len(value) > most:
        return f"{value[:most]!r}..."
    shown, most = repr(value), max(most, 100)
    return shown if isinstance(value, str | bytes) or len(shown) <= most else f"{shown[:most]}..."


class Way(NamedTuple):
    """A way out of an error: an argument that helps.

    Attributes:
        argument: its name, or several names with blanks.
        value: the value that helps; None for any.
        text: what it does, with `{}` for each argument as it is typed.
        otherwise: the way out where there is no such argument, as in a command without that option.
    """

    argument: str
    value: Any
    text: str
    otherwise: str = ""

    def __str__(self) -> str:
        typed = [SPELLING.get()(name, self.value) for name in self.argument.split()]
        if None in typed:
            return self.otherwise
        first, *rest = self.text.split("{}")
        return first + "".join(f"{name}{part}" for name, part in zip(typed, rest, strict=True))


class ArgumentError(ValueError):
    """An error that knows the argument it is about: in a command, the message names its option.

    Args:
        told: what was expected and what came; after the name of the argument, if it has one.
        ways: ways out of it, which may be plain text.
        argument: the name of the argument whose value is wrong; "" if it is the data.
        value: its value.

    >>> error = ArgumentError("must be at least 1, got 0", argument="folds", value=0)
    >>> str(error), error.argument, error.value
    ('folds must be at least 1, got 0', 'folds', 0)
    >>> str(ArgumentError("expected a grade, got 0.5", Way("labels", "real", "{} takes any number")))
    "expected a grade, got 0.5; labels='real' takes any number"
    """

    def __init__(self, told: str, *ways: Way | str, argument: str = "", value: Any = None) -> None:
        super().__init__(told, *ways)
        self.argument, self.value = argument, value

    def __str__(self) -> str:
        told, *ways = self.args
        if self.argument:
            told = f"{(SPELLING.get()(self.argument, None) or self.argument).removesuffix('=')} {told}"
        return "; ".join(filter(None, [told, *map(str, ways)]))


def needs_groups(name: str, what: str) -> ArgumentError:
    """The error of a measure or loss without the groups of documents; `what` they are, one of each document."""
    lacking = f"{name} needs groups, which this command does not support"
    return ArgumentError("", Way("diversity_groups", None, f"{name} needs {{}}, one {what}", lacking))


def one_line(message: str) -> str:
    r"""Put a message on one line; the middle of a very long one is cut out.

    >>> one_line("Parser key x:\n  Expected an int. Got value: 3")
    'Parser key x: Expected an int. Got value: 3'
    >>> len(one_line("x" * 10_000))
    605
    """
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 200]} ... {text[-200:]}"


def nearest(name: str, known: Iterable[str], *, most: int = 1, least: float = 0.6) -> list[str]:
    """The known names closest to `name`, closest first, ignoring case.

    Args:
        name: the name given.
        known: the names that exist.
        most: the maximum number returned.
        least: the minimum similarity, from 0 to 1.

    >>> nearest("lambdaloss", ["LambdaLoss", "ListNetLoss"])
    ['LambdaLoss']
    """
    lower = {each.lower(): each for each in reversed(list(known))}
    return [lower[each] for each in difflib.get_close_matches(name.lower(), lower, most, least)]


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, least: float = 0.6) -> str:
    """The suffix of a message about an unknown name: the closest known names, or nothing; see `nearest`.

    >>> "unknown measure 'nDGC'" + did_you_mean("nDGC", ["AP", "nDCG"])
    "unknown measure 'nDGC'; did you mean nDCG?"
    """
    near = nearest(name, known, most=most, least=least)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def explaining(
    messages: Mapping[str, str],
    otherwise: Callable[[str, Mapping[str, Parameter]], str] | None = None,
    instead: str = "",
) -> Callable[[_Called], _Called]:
    """A decorator: arguments that a function does not have, or not by position, raise TypeError with the way out.

    Args:
        messages: the message for a keyword argument that has another name here; names of the function's own are ignored.
        otherwise: from the name of any other unknown argument and the function's parameters to the message; Python's if None.
        instead: how other arguments are passed by name; their names if empty.

    >>> @explaining({"groups": "there is no groups=; pass qid="})
    ... def fit(X, y, *, qid=None): ...
    >>> fit(1, 2, groups=3)
    Traceback (most recent call last):
    ...
    TypeError: there is no groups=; pass qid=
    >>> fit(1, 2, 3)
    Traceback (most recent call last):
    ...
    TypeError: only X and y may be given by position, and 3 arguments were; pass the others by name, qid=
    """

    def decorate(function: _Called) -> _Called:
        known = dict(signature(function).parameters)
        kinds = {name: each.kind for name, each in known.items()}
        names = [name for name, kind in kinds.items() if kind <= Parameter.POSITIONAL_OR_KEYWORD]
        others = instead or ", ".join(f"{name}=" for name, kind in kinds.items() if kind == Parameter.KEYWORD_ONLY)
        most = math.inf if Parameter.VAR_POSITIONAL in kinds.values() else len(names)
        own = int(names[:1] == ["self"])

        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            for name in named:
                if name not in known:
                    message = messages.get(name) or (otherwise and otherwise(name, known))
                    if message:
                        raise TypeError(message)
            if len(given) > most:
                refuse_positions(names[own:], len(given) - own, others)
            return function(*given, **named)

        # With code of its own: torch.compile recompiles each code a few times only.
        own_call: Any = call
        own_call.__code__ = own_call.__code__.replace(co_name=function.__name__)
        return own_call

    return decorate


def import_extra(module: str, extra: str, used_for: str = "", error: type[Exception] = ImportError) -> Any:
    """A module of a package that an extra of rankstruct installs; raises an error, with the extra, if it is missing.

    The error says what it is `used_for`, if that is given.

    >>> import_extra("missing_package.part", "serving")
    Traceback (most recent call last):
    ...
    ImportError: missing_package is not installed: pip install 'rankstruct[serving]'
    """
    try:
        return import_module(module)
    except ImportError as missing:
        package = module.partition(".")[0]
        if missing.name not in (None, module, package):  # one that the package itself lacks
            raise
        needs = f"{used_for} needs {package}, which" if used_for else package
        raise error(f"{needs} is not installed: pip install 'rankstruct[{extra}]'") from missing


def warn_caller(message: str) -> None:
    """Warn at the line that called the library, from however deep in it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def refuse_positions(names: Sequence[str], count: int, others: str) -> NoReturn:
    """Raise TypeError for `count` arguments by position where only those with these names may be; `others` go by name."""
    allowed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "nothing"
    raise TypeError(
        f"only {allowed} may be given by position, and {count} arguments were; pass the others by name, {others}"
    )
