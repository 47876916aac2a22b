"""The help of `rankstruct fit` and similar commands: the common options, and where to find the others.

LightningCLI's own help lists all of Lightning and the path of every class of torch. All options work, shown or not.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from argparse import SUPPRESS, Action, _HelpAction
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from jsonargparse import DefaultHelpFormatter
from pytorch_lightning.cli import LightningArgumentParser
from torch import nn

from rankstruct import losses
from rankstruct._lazy import public_names
from rankstruct.commands._arguments import described
from rankstruct.configs import HelpfulParser
from rankstruct.losses import HingeLoss, RankingLoss

#: The groups of options in order, by prefix, and the options shown; all if None.
_GROUPS: dict[str, tuple[str, set[str] | None]] = {
    "": (
        "the run",
        {"help", "config", "seed_everything", "task", "output", "run", "average_weights", "ckpt_path"}
        | {"print_config"},
    ),
    "model": ("the model", None),
    "data": (
        "the data",
        {
            "path",
            "fold",
            "builtin",
            "prepare",
            "labels",
            "diversity_groups",
            "predict_path",
            "split",
            "num_train",
            "recommend",
        }
        | {"label", "qid", "categorical"}
        | {"lists_per_batch", "documents_per_batch", "users_per_batch", "max_list_size", "max_items", "separator"},
    ),
    "trainer": (
        "the trainer (Lightning's)",
        {"max_epochs", "max_time", "accelerator", "devices", "precision", "gradient_clip_val", "deterministic"}
        | {"check_val_every_n_epoch", "callbacks", "enable_progress_bar"},
    ),
    "checkpoint": ("checkpoints (Lightning's)", {"dirpath", "save_weights_only"}),
    "early_stopping": ("early stopping (Lightning's)", {"patience", "min_delta"}),
}
#: Help texts that replace an option's own.
_SAID = {
    "config": "a YAML file, or a name from `rankstruct configs`",
    "print_config": "print the complete config and exit",
    "seed_everything": "seed of all random numbers",
    "ckpt_path": "a checkpoint to start from, instead of --run",
    "model.optimizer": "such as torch.optim.SGD (default: AdamW with learning rate 0.01 and no weight decay)",
    "trainer.accelerator": "cpu, gpu, mps or auto",
    "trainer.precision": "such as 32-true, bf16-mixed or 16-mixed",
    "trainer.callbacks": "such as rankstruct.training.AnnealSigma; --trainer.callbacks+ adds to those of the config",
    "trainer.max_time": "stop after DD:HH:MM:SS",
    "trainer.enable_progress_bar": "false for one line per epoch instead of a bar, as in a log",
    "trainer.deterministic": "whether nondeterministic operations are errors",
    "checkpoint.dirpath": "folder of the checkpoints (default: checkpoints in the run's folder)",
    "early_stopping.min_delta": "the smallest increase of the first measure that counts as an improvement",
}
_NAMED = {
    "model.scorer": "the scorer of documents: {}; or a custom class by its path, such as my.module.MyScorer",
    "model.loss": "the loss to minimise: {}; or a custom class by its path (default: StructuredHingeLoss of AP)",
}
_VALUES = {"config": "CONFIG", "str": "TEXT", "float": "X", "int": "N", "bool": "BOOL"}


def library_losses() -> list[str]:
    """The names of the losses that a config can use: those called with the labels of lists."""
    return [name for name, taken in _modules(losses, RankingLoss, "forward") if "labels" in taken]


def with_full_losses(args: Sequence[str]) -> list[str]:
    """Prefix the losses of a command line with `rankstruct.losses.`, since other packages have losses of the same names.

    >>> with_full_losses(["fit", "--model.loss", "LambdaLoss", "--model.loss=my.Loss"])
    ['fit', '--model.loss', 'rankstruct.losses.LambdaLoss', '--model.loss=my.Loss']
    """
    known = set(library_losses())
    found = list(args)
    for at, arg in enumerate(found):
        option, equals, value = arg.partition("=")
        if option != "--model.loss":
            continue
        if equals and value in known:
            found[at] = f"{option}=rankstruct.losses.{value}"
        elif not equals and at + 1 < len(found) and found[at + 1] in known:
            found[at + 1] = f"rankstruct.losses.{found[at + 1]}"
    return found


def library_scorers(sizes: set[str], package: ModuleType) -> list[str]:
    """The names of a package's scorers that a config can use: those constructed from the sizes of the data."""
    return [name for name, taken in _modules(package, nn.Module, "__init__") if sizes <= taken]


def _modules(package: ModuleType, base: type, method: str) -> list[tuple[str, set[str]]]:
    kinds = [(name, getattr(package, name)) for name in sorted(public_names(package))]
    kinds = [(name, kind) for name, kind in kinds if inspect.isclass(kind) and issubclass(kind, base)]
    bases = (RankingLoss, HingeLoss)
    return [
        (name, set(inspect.signature(getattr(kind, method)).parameters)) for name, kind in kinds if kind not in bases
    ]


class _OptionFormatter(DefaultHelpFormatter):
    """The full help of an option, with types; if not `whole`, only its first sentence and its default."""

    def __init__(self, prog: str, *, whole: bool = True) -> None:
        super().__init__(prog, max_help_position=32)
        self._whole = whole

    def _get_help_string(self, action: Action) -> str:
        text = re.sub(r", known subclasses: .*\)$", ")", super()._get_help_string(action), flags=re.DOTALL)
        if self._whole:
            return text
        said = _SAID.get(action.dest) or re.split(r"(?<=[^.].)\.(?: |$)", " ".join((action.help or "").split()))[0]
        known = action.default not in (None, SUPPRESS, (), "") and "efault" not in said
        return said + (" (default: %(default)s)" if known else "")

    def _get_default_metavar_for_optional(self, action: Action) -> str:
        kinds = re.findall(r"\w+", self._get_type_str(action) or "")
        return next((value for kind, value in _VALUES.items() if kind in (*kinds, action.dest)), "NAME")

    def _format_action_invocation(self, action: Action) -> str:
        names = [name for name in action.option_strings if not name.endswith("+")]
        return super()._format_action_invocation(action).replace(f", {names[-1]}+", "\0").split("\0")[0]

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = (textwrap.fill(line, width, subsequent_indent="  ") for line in text.splitlines())
        return "\n".join(filled)


class _GroupHelp(_HelpAction):
    """`--trainer.help` and similar: all options of a group."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(parser.format_group((option_string or "").removeprefix("--").removesuffix(".help")))
        parser.exit()


class Parser(HelpfulParser, LightningArgumentParser):
    """A parser with a short help, and one-line errors without the usage text."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": _OptionFormatter, **options})
        self._command, self._named = "", dict[str, Sequence[str]]()

    def shorten(self, command: str, named: Mapping[str, Sequence[str]]) -> None:
        """Shorten the help of a command.

        Args:
            command: such as `"fit"`.
            named: the names of the classes that an option accepts, such as the losses for `"model.loss"`.
        """
        self._command, self._named = command, dict(named)
        for action in self._actions:
            if action.dest in named:
                action.help = _NAMED[action.dest].format(", ".join(named[action.dest]))
        self.usage = (
            f"rankstruct {command} --config CONFIG [OPTIONS]\n       rankstruct {command} --run FOLDER [OPTIONS]"
        )
        self.description = f"{described(command)}\nEvery value of a config can be set by an option."
        known = self._option_string_actions  # a data module named by its class has such an option
        long = [
            group
            for group, (_, shown) in _GROUPS.items()
            if group and shown is not None and f"--{group}.help" not in known
        ]
        for group in long:
            self.add_argument(f"--{group}.help", action=_GroupHelp, dest=SUPPRESS, default=SUPPRESS)
        self.epilog = (
            f"more help:\n  rankstruct {command} --model.loss.help NAME: the options of a loss; --model.scorer.help and "
            f"--model.optimizer.help likewise\n  rankstruct {command} --trainer.help: all options of the trainer; "
            f"{', '.join(f'--{group}.help' for group in long if group != 'trainer')} likewise"
        )

    def explained(self, message: str) -> str:
        """See `HelpfulParser`; for a wrong class, add where the valid ones are listed."""
        told = super().explained(message)
        for option in self._named:
            if f'"{option}"' in message:
                told += f"; names: rankstruct {self._command} --help; options: --{option}.help NAME"
        return told

    def class_names(self, option: str) -> list[str]:
        """The names of the classes that an option accepts."""
        return [*self._named.get(option, ())] or super().class_names(option)

    def format_help(self, *args: Any) -> str:
        """The help text; jsonargparse's own if it was not shortened."""
        if not self._named:
            return super().format_help(*args)
        self.formatter_class = partial(_OptionFormatter, whole=False)  # type: ignore[assignment]
        return self._arranged(_GROUPS, super().format_help)

    def format_group(self, group: str) -> str:
        """All options of a group, with their full help."""
        self.description = self.epilog = None
        return self._arranged({group: (_GROUPS[group][0], None)}, super().format_help)

    def _arranged(self, groups: Mapping[str, tuple[str, set[str] | None]], call: Callable[[], str]) -> str:
        """Call a function that formats the groups of options, with these groups."""
        kept, arranged = self._action_groups, []
        for group, (title, shown) in groups.items():
            places = [(*action.dest.rpartition(".")[::2], action) for action in self._actions if _is_option(action)]
            chosen = [a for prefix, name, a in places if prefix == group and (shown is None or name in shown)]
            arranged.append(SimpleNamespace(title=title, description=None, _group_actions=chosen))
        self._action_groups = arranged  # type: ignore[assignment]
        try:
            return call()
        finally:
            self._action_groups = kept


def _is_option(action: Action) -> bool:
    """Whether it is neither a link between options, nor `--model CONFIG`, nor `--model.loss.help`."""
    named = action.option_strings and action.option_strings[0].startswith("-")
    return bool(named) and action.dest not in _GROUPS and not action.dest.endswith(".help")
