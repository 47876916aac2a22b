"""Config files: YAML without duplicate keys, and a parser with one-line errors that suggest the option that was meant."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, Union, get_args, get_origin

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
            _lines(yaml.compose(text, Loader=yaml.SafeLoader), f"{path}: " if path else "")
        return _without_former(jsonargparse.get_loader("yaml")(text))
    except RecursionError:
        raise ValueError(f"{path or 'a value'} is nested too deeply") from None


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


def check_config(path: str | Path) -> dict[str, int]:
    """Validate the syntax of a config file; returns the line of each key, such as `{"model.loss": 3}`.

    Raises:
        ValueError: the file is not text or not YAML, is too large or nested too deeply, has a duplicate key, or expands to too
            many values through its aliases (`*name`).
    """
    path = Path(path)
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} is not a config: larger than {_MOST_BYTES:,} bytes")
    with _parsing(path):
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
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


def _lines(root: Any, place: str) -> dict[str, int]:
    """The line of each key, by its full name; raises ValueError for a duplicate.

    `a.b: 1` and `a: {b: 1}` are the same key to the parser. A node with aliases is visited once.
    """
    found: dict[Any, int] = {}
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
            if whole in found:
                places = sorted({found[whole], line})
                where = f"on line{'s' * (len(places) > 1)} {' and '.join(map(str, places))}"
                raise ValueError(
                    f"{place}duplicate key {'.'.join(map(str, whole))} {where}: the second would replace the first; merge the two"
                )
            found[whole] = line
            nodes.append((value, whole))
    return {".".join(map(str, whole)): line for whole, line in found.items()}


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
    """A parser of options and configs that reads YAML with `load_yaml`; its errors are one line, with a suggestion.

    Attributes:
        files: the config files of the command line, from which errors cite the line of a key.
        typed: the other options of the command line.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"parser_mode": _MODE, "allow_abbrev": False, **options})
        self.files: Sequence[str | Path] = ()
        self.typed: Sequence[str] = ()
        self._made = ""  # the class whose options these are, if of one class only

    def look_at(self, files: Sequence[str | Path], args: Sequence[str]) -> None:
        """Register the config files and the other arguments of the command line, for error messages."""
        self.files = files
        self.typed = [arg.partition("=")[0].strip("-+") for arg in args if arg.startswith("--")]

    def add_class_arguments(self, theclass: type, nested_key: str | None = None, **options: Any) -> list[str]:
        """Add the options of a class."""
        self._made = "" if nested_key else theclass.__name__
        added = super().add_class_arguments(theclass, nested_key, **options)
        for action in self._actions:
            if action.dest in added and hasattr(action, "_typehint"):
                action._typehint = _integers_first(action._typehint)
        return added

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise `jsonargparse.ArgumentError` with a readable message, or exit with it."""
        message = self.explained(message)
        if not self.exit_on_error:
            raise jsonargparse.ArgumentError(None, message) from ex
        misused(message)

    def explained(self, message: str) -> str:
        """A message of jsonargparse made readable: the place of the option, the problem, a suggestion."""
        if keyed := re.match(r'Parser key "([\w.]+)":\s*(.*)', message, re.DOTALL):
            key, told = keyed[1], self._explained_value(*keyed.groups())
            message = f"{key}.{told}" if re.match(r"[a-z_][\w.]*: ", told) else f"{key}: {told}"
        elif unknown := _UNKNOWN.match(message):
            option, names = unknown[1] or unknown[3] or self._whole_name(unknown[4]), self._names()
            if unknown[2] and any(name.startswith(f"{unknown[2]}.") for name in names):  # a group, no sub-command
                option = f"{unknown[2]}.{option}"
            whose = f"{self._made} has" if self._made and not self.files else "there is"
            meant = meant_option(option, names)
            message = f"{whose} no option {option!r}" + (
                f"; did you mean {meant}?" if meant else _others(option, names)
            )
        elif linked := re.search(r'Linked "([\w.]+)" must .* "([\w.]+)"|\w+\(([\w.]+)\) --> ([\w.]+):', message):
            message = f"{linked[1] or linked[4]} is set by {linked[2] or linked[3]}; set that instead"
        elif self._made and not self.files:
            message = f"{self._made}: {message}"
        return one_line(self._place(message) + message)

    def _explained_value(self, key: str, told: str) -> str:
        """What is wrong with a value, in one line."""
        for name in re.findall(r"'(\w+)': ", told.partition(" value: ")[2]):
            if name not in _OF_OBJECTS and (meant := nearest(name, _OF_OBJECTS, least=0.8)):
                return f"there is no key {name!r}; did you mean {meant[0]}?"
        if problem := _OF_CLASS.search(told):
            inner = " ".join((problem[3] or problem[4]).split())
            return self._unknown_class(key, problem[2] or _given(told), inner)
        if wrong := re.search(r"Import path (\S*) ?does not correspond to a subclass of (\w+)", told):
            return f"{wrong[1] or _given(told)} is not a {wrong[2]}"
        union = re.search(r"Subtypes: \[(.*)\]\n", told)
        wrong = re.search(r"Expected a dot import path string: (\S+)", told)
        if wrong and not (union and re.search(r"<class '(?:int|float|bool|str)'>", union[1])):
            return self._unknown_class(key, wrong[1], f"there is no {wrong[1]}")
        single = re.fullmatch(r"Expected (?:an? )?(.*?)\.? Got value: (.*)", told.strip(), re.DOTALL)
        if not (union or single):
            return told
        expected, got = (union[1], _given(told)) if union else (single[1], single[2])  # type: ignore[index]
        choices = re.findall(r"'([^']*)'", expected)
        return f"expected {_types(expected)}, got {got.strip()}{did_you_mean(got.strip(), choices)}"

    def _unknown_class(self, key: str, path: str, told: str) -> str:
        """The message for a class that cannot be created, with a suggestion if it does not exist."""
        module, _, name = path.rpartition(".")
        known = {*self.class_names(key), *(dir(sys.modules[module]) if module in sys.modules else ())}
        if f"has no attribute '{name}'" in told:
            told = f"there is no {path}"
        return told + (did_you_mean(name, sorted(known), least=0.75) if told == f"there is no {path}" else "")

    def _whole_name(self, key: str) -> str:
        """A key of a config file with the keys above it."""
        found = (name for file in self.files for name in check_config(file) if f".{name}".endswith(f".{key}"))
        return next(found, key)

    def _place(self, message: str) -> str:
        """`file:line: ` of the key that a message is about, if it is set in one of the files and not by an option."""
        about = re.match(r"(?:([\w.]+): )?(?:(?:\w+ has|there is) no option '([^']+)')?", message)
        key = re.sub(r"\.(init_args|\d+)\b", "", ".".join(filter(None, about.groups()))) if about else ""
        if not key or any(f"{key}.".startswith(f"{each}.") or f"{each}.".startswith(f"{key}.") for each in self.typed):
            return ""
        for file in self.files:
            for name, line in check_config(file).items():
                if key == re.sub(r"\.(init_args|\d+)\b", "", name):
                    return f"{file}:{line}: "
        return ""

    def class_names(self, option: str) -> list[str]:
        """The names of the classes that an option accepts."""
        action = next((each for each in self._actions if each.dest == option), None)
        shown = getattr(action, "extra_help", str)()  # ", known subclasses: ..."
        return [each.rpartition(".")[2] for each in re.findall(r"[\w.]+", shown.partition(": ")[2])]

    def _names(self) -> list[str]:
        """The names of all options, those of the sub-command included."""
        inner = [
            each for action in self._actions for each in (getattr(action, "_name_parser_map", None) or {}).values()
        ]
        names = [action.dest for parser in (self, *inner) for action in parser._actions]
        return [*names, "class_path", "init_args"] if self._made else names


#: The keys of a class and its arguments.
_OF_OBJECTS = ("class_path", "init_args")
#: jsonargparse's message for an unknown option.
_UNKNOWN = re.compile(
    r"unrecognized arguments: --([\w.+-]+)|(?:(?:Subcommand|Group) '([\w.-]+)' does not accept o|O)ption '([^']+)'"
    r'|Spaces not allowed in keys: "([^"]+)"'
)
#: Its message for a class that an option names: the path, and the problem, which may span lines with deeper indentation.
_OF_CLASS = re.compile(
    r"^( *)(?:- )?(?:Problem with given class_path '(.*)':\n((?:\1 +.*\n?)+)|.* a callable class: (.*?)(?:\. Got value: .*)?$)",
    re.MULTILINE,
)


def _others(option: str, names: Iterable[str]) -> str:
    """The suffix of a message about an unknown option: those of its group, or nothing."""
    group = option.rpartition(".")[0]
    inner = {
        name.removeprefix(f"{group}.").partition(".")[0] for name in names if group and name.startswith(f"{group}.")
    }
    mine = sorted(name for name in inner if name.isidentifier() and name not in (*_OF_OBJECTS, "help"))
    shown = ", ".join(mine[:_MOST_SHOWN]) + (", ..." if len(mine) > _MOST_SHOWN else "")
    return f"; {group} has {shown}" if mine else ""


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


def _given(told: str) -> str:
    return told.partition("Given value: ")[2].partition("\n")[0]


def _types(shown: str) -> str:
    """Types as a message shows them: `int or null` for `<class 'int'>, <class 'NoneType'>`."""
    shown = re.sub(r"typing\.Literal\[([^]]*)\]", lambda found: "one of " + found[1].replace(", ", "|"), shown)
    shown = re.sub(r"<class '([\w.]+)'>", r"\1", shown)
    shown = re.sub(r"(?<!['\w])(?:\w+\.)+(\w+)", r"\1", shown).replace("NoneType", "null")
    *most, last = re.split(r", (?![^\[]*\])", shown)
    return (f"{', '.join(most)} or {last}" if most else last).replace("|", ", ")


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
    known = [name for name in dict.fromkeys(names) if re.fullmatch(r"[a-z]\w*(\.\w+)*", name, re.IGNORECASE)]
    group, _, last = option.rpartition(".")
    if (usual := _ELSEWHERE.get(option.lower(), "")) and any(f"{usual}.".startswith(f"{each}.") for each in known):
        return usual
    for name in known:  # the group was left out
        if f"{option}.".startswith(f"{name.partition('.')[2]}.") and "." in name:
            return name.partition(".")[0] + "." + option
    mine = [each for each in known if each.rpartition(".")[0] == group]
    usual = _ELSEWHERE.get(last.lower(), "") if group else ""  # in another group, or deeper
    if (
        usual
        and usual != option.replace(".init_args", "")
        and any(f"{usual}.".startswith(f"{each}.") for each in known)
    ):
        return usual
    found = nearest(option, mine, least=0.8) or nearest(option, known, least=0.8)
    if found:
        return found[0]
    if group:
        groups = [each.rpartition(".")[0] for each in known if "." in each] + known
        right = nearest(group, filter(None, groups), least=0.7)
        if right and not f"{group}.".startswith(f"{right[0]}."):
            return meant_option(f"{right[0]}.{last}", known) or right[0]
        return "" if right else meant_option(group, known)  # the option is deeper than any name
    lasts = {each.rpartition(".")[2]: each for each in known}
    return next((lasts[each] for each in nearest(option, lasts, least=0.8)), "")
