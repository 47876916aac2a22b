"""Config files: YAML without duplicate keys, and a parser whose errors have the place and suggest the option that was meant."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from importlib.util import find_spec
from inspect import signature
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import jsonargparse
import yaml

from rankstruct.messages import did_you_mean, nearest, one_line

_MOST_BYTES, _MOST_VALUES = 2**20, 100_000
_MOST_SHOWN = 15  # options in a message
_MODE = "rankstruct"  # jsonargparse's name of `load_yaml`

#: Common names of options in other tools.
_ELSEWHERE = {
    "batch_size": "data.lists_per_batch",
    "epochs": "trainer.max_epochs",
    "gpus": "trainer.devices",
    "learning_rate": "model.optimizer.lr",
    "lr": "model.optimizer.lr",
    "metrics": "model.measures",
    "seed": "seed_everything",
    "weight_decay": "model.optimizer.weight_decay",
}

#: Former options of data, and their defaults, which the configs of earlier runs have.
_FORMER = {
    "sizes": [10, 5, 35],
    "queries": 50,
    "documents": 100,
    "relevant": None,
    "prepare_train": [],
    "prepare_test": [],
}


def load_yaml(text: str, path: Any = "") -> Any:
    r"""Parse YAML, with numbers as jsonargparse reads them.

    Args:
        text: YAML or JSON.
        path: the file it was read from, for messages.

    Raises:
        ValueError: a duplicate key, or too deep nesting.
        yaml.YAMLError: invalid YAML.

    >>> load_yaml("a: [1, 2]")
    {'a': [1, 2]}
    >>> load_yaml("a: 1\nb: 2\na: 3")
    Traceback (most recent call last):
        ...
    ValueError: duplicate key a on lines 1 and 3: the second would replace the first; merge the two
    """
    try:
        if text.count(":") > 1:
            _lines(_nodes(text), f"{path}: " if path else "")
        return _without_former(jsonargparse.get_loader("yaml")(text))
    except RecursionError:
        raise ValueError(f"{path or 'a value'} is nested too deeply") from None


@lru_cache(maxsize=8)
def _nodes(text: str) -> Any:
    """The nodes of YAML, which nobody changes. A command parses its config several times, and this is the longest part."""
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _without_former(config: Any) -> Any:
    """The config of an earlier run without options of data that only the papers' experiments have now, if they had no effect."""
    data = config.get("data") if isinstance(config, dict) else None
    if isinstance(data, dict) and str(data.get("class_path", "RankingDataModule")).endswith("RankingDataModule"):
        given = data.get("init_args") or data
        for name, default in _FORMER.items():
            if name in given and given[name] == default:
                del given[name]
    return config


jsonargparse.set_loader(_MODE, load_yaml, (yaml.YAMLError,))


def load_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: invalid JSON, or a duplicate key.

    >>> load_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    ValueError: duplicate key 'a' in an object
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(n for n in names if names.count(n) > 1)!r} in an object")
    return found


def read_config(path: str | Path) -> Any:
    """Parse a config file.

    Raises:
        ValueError: as `check_config`.
    """
    check_config(path)
    with _parsing(path):
        return jsonargparse.get_loader("yaml")(Path(path).read_text(encoding="utf-8"))


def check_config(path: str | Path) -> dict[str, tuple[int, list[str]]]:
    """Validate the syntax of a config file; returns the line and the scalars of each key: `{"model.loss": (3, ["WARPLoss"])}`.

    Raises:
        ValueError: the file is not text or not YAML, is too large or nested too deeply, has a duplicate key, or expands to too
            many values through its aliases (`*name`).
    """
    path = Path(path)
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} is not a config: larger than {_MOST_BYTES:,} bytes")
    with _parsing(path):
        root = _nodes(path.read_text(encoding="utf-8"))
        values = _values(root, {})
    if values > _MOST_VALUES:
        raise ValueError(f"{path} is not a config: its aliases expand to more than {_MOST_VALUES:,} values")
    with _parsing(path):
        return _lines(root, f"{path}: ")


@contextmanager
def _parsing(path: str | Path) -> Iterator[None]:
    """Raise ValueError, with the path, for what YAML raises on a file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a config: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise ValueError(f"{path} is not a config: nested too deeply") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{path} is not a config: not valid YAML ({one_line(problem)}{place})") from None
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(
            f"{path} is not a config: {one_line(str(error))}"
        ) from None  # such as a day that does not exist


def _values(node: Any, known: dict[int, float]) -> float:
    """Number of values of a node, aliases expanded; infinite if it contains itself. Each node is visited once."""
    children = node.value if isinstance(getattr(node, "value", None), list) else []
    if id(node) not in known:
        known[id(node)] = float("inf")
        pairs = (child if isinstance(child, tuple) else (child,) for child in children)
        known[id(node)] = 1 + sum(_values(each, known) for pair in pairs for each in pair)
    return known[id(node)]


def _lines(root: Any, place: str) -> dict[str, tuple[int, list[str]]]:
    """The line of each key and its scalars, by its full name; raises ValueError for a duplicate.

    `a.b: 1` and `a: {b: 1}` are the same key to the parser. A node with aliases is visited once.
    """
    keys: dict[Any, tuple[int, list[str]]] = {}
    nodes: list[tuple[Any, tuple[Any, ...]]] = [(root, ())]
    seen: set[int] = set()
    reader = yaml.SafeLoader("")
    while nodes:
        node, above = nodes.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += [(each, (*above, number)) for number, each in enumerate(node.value)]
            continue
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            name = reader.construct_object(key)  # 1 and 0x1 are one key
            whole = (*above, *(name.split(".") if isinstance(name, str) else (name,)))
            line = key.start_mark.line + 1
            if whole in keys:
                places = sorted({keys[whole][0], line})
                where = f"on line{'s' * (len(places) > 1)} {' and '.join(map(str, places))}"
                raise ValueError(
                    f"{place}duplicate key {'.'.join(map(str, whole))} {where}: the second would replace the first; merge the two"
                )
            scalars = value.value if isinstance(value, yaml.SequenceNode) else [value]
            keys[whole] = line, [each.value for each in scalars if isinstance(each, yaml.ScalarNode)]
            nodes.append((value, whole))
    return {".".join(map(str, whole)): each for whole, each in keys.items()}


def instantiate(config: str | Path, overrides: Sequence[str], add: Callable[[HelpfulParser], object]) -> Any:
    """The values of a config with classes instantiated; `add` adds the options to the parser.

    Raises:
        ValueError: the config or an override is invalid; the message is one line.
    """
    parser = HelpfulParser(exit_on_error=False)
    parser.look_at([config], overrides)
    parser.add_argument("--config", action="config")
    add(parser)
    try:
        return parser.instantiate_classes(parser.parse_args(["--config", str(config), *overrides]))
    except (jsonargparse.ArgumentError, TypeError, ValueError) as error:
        raise ValueError(told if (told := str(error)).startswith(str(config)) else f"{config}: {told}") from error


class HelpfulParser(jsonargparse.ArgumentParser):
    """A parser of options and configs that reads YAML with `load_yaml`; its errors are one line, with place and suggestion.

    They are jsonargparse's, unless what the user has written shows what is wrong: an option that does not exist or is set by
    another, a class that does not exist, a value that is no number or choice.

    Attributes:
        files: the config files of the command line, from which errors cite the line of a key.
        typed: the other options of the command line, with their values.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"parser_mode": _MODE, "allow_abbrev": False, **options})
        self.files: Mapping[str | Path, Path] = {}
        self.typed: dict[str, str] = {}
        self._linked: dict[str, str] = {}

    def look_at(self, files: Sequence[str | Path], args: Sequence[str]) -> None:
        """Register the config files and the other arguments of the command line, for error messages."""
        self.files = {file: Path(file).absolute() for file in files}  # jsonargparse reads a file in its folder
        self.typed = {}
        option = ""
        for arg in args:
            if arg.startswith("--"):
                option, _, value = arg.partition("=")
                self.typed[option.strip("-+")] = value
            elif option:
                self.typed[option.strip("-+")] = arg

    def add_class_arguments(self, theclass: type, nested_key: str | None = None, **options: Any) -> list[str]:
        """Add the options of a class."""
        added = super().add_class_arguments(theclass, nested_key, **options)
        for action in self._actions:
            if action.dest in added and hasattr(action, "_typehint"):
                action._typehint = _integers_first(action._typehint)
        return added

    def link_arguments(self, source: Any, target: str, *args: Any, **options: Any) -> None:
        """Let one option set another."""
        self._linked[target] = str(source)
        super().link_arguments(source, target, *args, **options)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise `jsonargparse.ArgumentError` with a message of one line, or exit with it."""
        message = one_line(self.explained(message))
        if not self.exit_on_error:
            raise jsonargparse.ArgumentError(None, message) from ex
        misused(message)

    def explained(self, message: str) -> str:
        """A message of jsonargparse with the place of the option and a suggestion, both from what the user has written."""
        written: dict[str, tuple[str, list[str]]] = {}
        for file, path in self.files.items():
            written |= {name: (f"{file}:{line}: ", values) for name, (line, values) in check_config(path).items()}
        for name, value in self.typed.items():
            written.pop(f"{name}.class_path", None)
            written |= {each: ("", values) for each, values in _typed(name, value).items()}
        actions = {action.dest: action for parser in self._parsers() for action in parser._actions}
        partial = {each for name in written for each in _and_above(name.rpartition(".")[0])}
        problem = re.sub("Given value: .*", "", message)  # which quotes the options that are right too
        for name in sorted(written, key=lambda name: name not in message):
            place, values = written[name]
            if name in self._linked and name in message and name not in partial:
                return f"{place}{name} is set by {self._linked[name]}; set that instead"
            own = name.rpartition(".")[2]
            inner = f"'{own}'" in problem or f'"{own}"' in problem
            unknown = "" if name in partial else _unknown(name, actions)
            if told := unknown or (inner and self._of_class(name, actions, written)):
                return place + told
        about = next((name for name in written if name in actions and f'"{name}"' in message), "")
        place, values = written.get(f"{about}.class_path", written.get(about, ("", [])))
        told = self._wrong_value(actions[about], values) if about else ""
        return message if place and message.startswith(place) else place + (told or message)

    def _of_class(self, name: str, actions: Mapping[str, Any], written: Mapping[str, Any]) -> str:
        """What is wrong with an option of a class that an option names, at any depth, or nothing."""
        above, _, own = name.rpartition(".")
        above = above.removesuffix(".init_args")
        paths = [path for key in (above, f"{above}.class_path") if key in written for path in written[key][1]]
        named = next((each for each in _and_above(above) if each in actions), None)
        if named is None or own in _OF_OBJECTS or not paths:
            return ""
        option = ".".join(part for part in above.split(".") if part != "init_args" and not part.isdecimal())
        module, _, kind = next(
            (each for each in self._paths(actions[named]) if each.endswith(f".{paths[-1]}")), paths[-1]
        ).rpartition(".")
        try:
            made = getattr(sys.modules[module or "rankstruct"], kind)
            known, hints = signature(made).parameters, get_type_hints(made.__init__)
        except (KeyError, AttributeError, TypeError, ValueError, NameError):
            return ""
        if own in known:
            return _wrong_plain(f"{option}.{own}", _kinds(hints.get(own)), written[name][1])
        if any(each.kind is each.VAR_KEYWORD for each in known.values()):
            return ""
        return f"{option}: {kind} has no option {own!r}{did_you_mean(own, known) or _told(kind, known)}"

    def _wrong_value(self, action: Any, values: Sequence[str]) -> str:
        """What is wrong with the value of an option, if the type of the option shows it; otherwise nothing."""
        kinds = _kinds(getattr(action, "_typehint", None))
        if told := _wrong_plain(action.dest, kinds, values):
            return told
        bases = tuple(kind for kind in kinds if isinstance(kind, type) and kind not in _PLAIN)
        for path in values:
            if not path or path[0] in "[{":
                continue
            module, _, name = path.rpartition(".")
            known, kind = [*self.class_names(action), *dir(sys.modules.get(module))], None
            if module in sys.modules:
                kind = getattr(sys.modules[module], name, None)
            elif module and find_spec(top := module.partition(".")[0]) is None:
                return f"{action.dest}: No module named {top!r}"
            elif module or name in known or {*kinds} & {*_PLAIN[:-1]}:
                continue  # jsonargparse says why
            if kind is None:
                return f"{action.dest}: there is no {path}{did_you_mean(name, known, least=0.75)}"
            if bases and isinstance(kind, type) and not issubclass(kind, bases):
                return f"{action.dest}: {path} is not a {bases[0].__name__}"
        return ""

    def class_names(self, action: Any) -> list[str]:
        """The names of the classes that an option accepts."""
        return [path.rpartition(".")[2] for path in self._paths(action)]

    def _paths(self, action: Any) -> list[str]:
        """The import paths of the classes that an option accepts, as its help shows them."""
        return getattr(action, "extra_help", str)().partition(": ")[2].split(", ")

    def _parsers(self) -> list[Any]:
        """The parser itself, and that of the sub-command."""
        maps = (getattr(action, "_name_parser_map", None) or {} for action in self._actions)
        return [self, *(parser for each in maps for parser in each.values())]


#: The keys of a class and its arguments.
_OF_OBJECTS = ("class_path", "init_args")
_PLAIN = (bool, int, float, str, NoneType)


def _typed(name: str, value: str) -> dict[str, list[str]]:
    """The scalars of an option of the command line, and of the keys within its value, by their full names."""
    if value[:1] not in ("[", "{"):
        return {name: [value]}
    try:
        root = _nodes(value)
        inner = {f"{name}.{key}": scalars for key, (_, scalars) in _lines(root, "").items()}
    except (yaml.YAMLError, ValueError, RecursionError):
        return {name: [value]}
    scalars = [each.value for each in root.value if isinstance(each, yaml.ScalarNode)]
    return {name: scalars or [value], **inner}


def _and_above(name: str) -> Iterator[str]:
    """A key and those above it: a.b.c, a.b and a."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _unknown(option: str, actions: Mapping[str, Any]) -> str:
    """What is said of an option that does not exist, or nothing; one within the value of another is not looked at."""
    for part in option.split("."):
        if part not in _OF_OBJECTS and (meant := nearest(part, _OF_OBJECTS, least=0.8)):
            return f"{option.partition(f'.{part}')[0]}: there is no key {part!r}; did you mean {meant[0]}?"
    group = option.rpartition(".")[0]
    if any(hasattr(actions.get(above), "_typehint") for above in _and_above(option)):
        return ""
    if option in actions or any(name.startswith(f"{option}.") for name in actions):
        return ""
    if meant_one := meant_option(option, actions):
        return f"there is no option {option!r}; did you mean {meant_one}?"
    names = [name.removeprefix(f"{group}.") for name in actions if name.startswith(f"{group}.")]
    return f"there is no option {option!r}" + _told(group, names)


def _told(whose: str, names: Iterable[str]) -> str:
    """The suffix of a message about an unknown option: those that there are."""
    mine = sorted(name for name in names if name.isidentifier() and name not in ("help", "self"))
    shown = ", ".join(mine[:_MOST_SHOWN]) + (", ..." if len(mine) > _MOST_SHOWN else "")
    return f"; {whose} has {shown}" if mine else ""


def _wrong_plain(name: str, kinds: Sequence[Any], values: Sequence[str]) -> str:
    """What is said of a value of an option of numbers, texts or choices; nothing for other types."""
    text, choices = ", ".join(values), dict.fromkeys(str(choice) for kind in kinds for choice in get_args(kind))
    if not kinds or text in choices or not all(kind in _PLAIN or get_origin(kind) is Literal for kind in kinds):
        return ""
    plain = ["null" if kind is NoneType else kind.__name__ for kind in kinds if kind in _PLAIN]
    expected = ([f"one of {', '.join(choices)}"] if choices else []) + plain
    return f"{name}: expected {' or '.join(expected)}, got {text}{did_you_mean(text, choices)}"


def _kinds(hint: Any) -> list[Any]:
    """The types of a union, or the only one."""
    if get_origin(hint) in (Union, UnionType):
        return [kind for each in get_args(hint) for kind in _kinds(each)]
    return [] if hint is None else [hint]


def _integers_first(hint: Any) -> Any:
    """`int | float` for `float | int`: of two equal unions typing returns the one that was built first.

    The first type that fits is taken, and for `trainer.limit_test_batches` 1 is a batch, 1.0 is all of them.
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    if not {int, float} <= set(kinds) or kinds.index(int) < kinds.index(float):
        return hint
    return reduce(or_, sorted(kinds, key=lambda kind: kind is float))


def misused(message: str) -> NoReturn:
    """Exit as argparse does, with a one-line message."""
    print(f"rankstruct: {one_line(message)}", file=sys.stderr)
    raise SystemExit(2)


def meant_option(option: str, names: Iterable[str]) -> str:
    """The option that was probably meant, or "".

    Args:
        option: the unknown option, such as `trainer.max_epoch`.
        names: the known options.

    >>> names = ["model.loss", "model.optimizer", "trainer.max_epochs", "seed_everything"]
    >>> [meant_option(each, names) for each in ("max_epochs", "optimizer.lr", "trainer.max_epoch", "modle.loss", "seed")]
    ['trainer.max_epochs', 'model.optimizer.lr', 'trainer.max_epochs', 'model.loss', 'seed_everything']
    >>> meant_option("model.lr", names), meant_option("model.epochs", names)
    ('model.optimizer.lr', 'trainer.max_epochs')
    """
    known = list(dict.fromkeys(names))
    group, _, last = option.rpartition(".")
    usual = _ELSEWHERE.get(last.lower(), "")
    if (
        usual
        and usual != option.replace(".init_args", "")
        and any(f"{usual}.".startswith(f"{name}.") for name in known)
    ):
        return usual
    if whole := [name for name in known if name.partition(".")[2] == option]:  # the group was left out
        return whole[0]
    if near := nearest(option, known, least=0.8):
        return near[0]
    if group and not any(f"{name}.".startswith(f"{group}.") for name in known):
        return meant_option(group, known)
    lasts = {name.rpartition(".")[2]: name for name in known}
    return next((lasts[name] for name in nearest(last, lasts, least=0.8)), "")
