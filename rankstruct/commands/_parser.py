"""LightningCLI's parser with the names of our losses and scorers, one-line errors, and a help for each group of options."""

from __future__ import annotations

from argparse import SUPPRESS, Action, _HelpAction
from collections.abc import Mapping, Sequence
from typing import Any

from jsonargparse import DefaultHelpFormatter
from pytorch_lightning.cli import LightningArgumentParser

from rankstruct.commands._options import loss_names
from rankstruct.configs import HelpfulParser

_GROUPS = ("model", "data", "trainer", "checkpoint", "early_stopping")


def with_full_losses(args: Sequence[str]) -> list[str]:
    """Prefix the losses of a command line with `rankstruct.losses.`, since other packages have losses of the same names.

    >>> with_full_losses(["fit", "--model.loss", "LambdaLoss", "--model.loss=my.Loss"])
    ['fit', '--model.loss', 'rankstruct.losses.LambdaLoss', '--model.loss=my.Loss']
    """
    known, full, option = loss_names(), list[str](), ""
    for arg in args:
        option, equals, value = arg.partition("=") if arg.startswith("-") else (option, "", arg)
        mine = option == "--model.loss" and value in known
        full.append(f"{option}{equals}"[: len(arg) - len(value)] + f"rankstruct.losses.{value}" if mine else arg)
    return full


class _ConfigFormatter(DefaultHelpFormatter):
    """Without the list of known subclasses, all of torch's."""

    def _get_help_string(self, action: Action) -> str:
        text, cut, _ = super()._get_help_string(action).partition(", known subclasses: ")
        return f"{text})" if cut else text


class _GroupHelp(_HelpAction):
    """`--trainer.help` and similar: all options of a group."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        group = str(option_string).removesuffix("help").strip("-")
        shown = [each for each in parser._actions if each.dest.startswith(group) and not each.dest.endswith(".help")]
        formatter = parser._get_formatter()
        formatter.add_arguments(
            [each for each in shown if each.option_strings and each.option_strings[0].startswith("-")]
        )
        print(formatter.format_help())
        parser.exit()


class Parser(HelpfulParser, LightningArgumentParser):
    """A parser of the options of a config."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": _ConfigFormatter, **options})
        self._command, self._named = "", dict[str, Sequence[str]]()

    def name(self, command: str, named: Mapping[str, Sequence[str]]) -> None:
        """Add the helps of groups to the parser of a command.

        Args:
            command: such as `"fit"`.
            named: the names of the classes that an option accepts, such as the losses for `"model.loss"`.
        """
        self._command, self._named = command, dict(named)
        for group in _GROUPS:  # a data module named by its class has one
            if f"--{group}.help" not in self._option_string_actions:
                self.add_argument(f"--{group}.help", action=_GroupHelp, dest=SUPPRESS, default=SUPPRESS)

    def explained(self, message: str) -> str:
        """See `HelpfulParser`; for a wrong class, add where the valid ones are listed."""
        told = super().explained(message)
        for option in self._named:
            if f'"{option}"' in message:
                told += f"; names: rankstruct {self._command} --help; options: --{option}.help NAME"
        return told

    def class_names(self, action: Action) -> list[str]:
        """The names of the classes that an option accepts."""
        return [*self._named.get(action.dest, ())] or super().class_names(action)
