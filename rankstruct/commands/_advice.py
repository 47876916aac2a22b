"""Translate the advice of the library's errors for a command: its options instead of a function's arguments.

Advice for which the command has no option is dropped, or replaced by something the user can do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Commands that read their data from a config.
_CONFIGS = ("fit", "validate", "test", "predict", "cross-validate", "compare", "tune", "fit-exact", "experiment")
_ANY = ""


def _configs(said: str) -> dict[str, str]:
    return dict.fromkeys(_CONFIGS, said)


#: A pattern of messages, and its replacement by command; "" is for all others.
_ADVICE: tuple[tuple[str, Mapping[str, str]], ...] = (
    (
        r"; labels='real' takes any number",
        {
            **_configs("; --data.labels real takes any number"),
            "evaluate": "; --real-labels takes any number",
            "convert": "; --real-labels takes any number",
            _ANY: "; correct it",
        },
    ),
    (
        r"; zero_based=True takes ids from 0(?: \(in a command[^)]*\))?",
        {
            **_configs("; --data.zero_based true takes ids from 0"),
            "predict": "; in training they started at 1",
            _ANY: "; --zero-based takes ids from 0",
        },
    ),
    (
        r"; if its cells are categories, name it: categorical=\[(.*?)\]",
        {
            **_configs(r"; if its cells are categories, give --data.categorical \1"),
            "predict": "",
            _ANY: r"; if its cells are categories, give --categorical \1",
        },
    ),
    (
        r"; name the right one, such as (\w+)='(.*?)', and remove the other if it is not a feature",
        {
            **_configs(r"; name the right one, such as --data.\1 '\2', and remove the other if it is not a feature"),
            "predict": "; remove the one that the training data did not have",
            _ANY: r"; name the right one, such as --\1 '\2', and remove the other if it is not a feature",
        },
    ),
    (
        r"; qid= and label= name them",
        {
            **_configs("; --data.qid and --data.label name them"),
            "predict": "; give them the names of training",
            _ANY: "; --qid and --label name them",
        },
    ),
    (
        r"; (label|qid)= names another column",
        {**_configs(r"; --data.\1 names another column"), _ANY: r"; --\1 names another column"},
    ),
    (
        r"omitted='zero' reads omitted features as 0",
        {_ANY: "write the zeros on such lines too, or omit all zeros of the file"},
    ),
    (
        r"; increase num_features=",
        {"predict": "; the model was trained on no others", "convert": "; increase --num-features", _ANY: ""},
    ),
    (r"; convert with num_features=", {_ANY: "; convert it with `rankstruct convert --num-features`"}),
    (r"; read them with the same num_features=", {_ANY: ""}),
    (r"use sparse=True if most are 0, or convert the file", {_ANY: "convert the file with `rankstruct convert`"}),
    (r" \(another file: group_file=\)", {"convert": " (another file: --group-file)", _ANY: ""}),
    (
        r" in a file \(group_file=\)",
        {"convert": " in a file (--group-file)", _ANY: " in a file of the same name plus .query"},
    ),
    (
        r"since group_file= defines the lists; remove group_file",
        {_ANY: "since --group-file defines the lists; remove it"},
    ),
    (
        r"; remove fold \(--data\.fold null\), or, .*?\(--data\.protocol cross-validation\)",
        {"convert": "; remove --folds"},
    ),
    (r"; give fold \(--data\.fold\) to select one", {"convert": "; give --folds"}),
    (
        r"(?:needs|requires) diversity_groups=, one [\w ]+ per document[:,] (?:such as )?its host or topic",
        {
            **_configs("needs groups of documents; set data.diversity_groups"),
            _ANY: "needs groups, which this command does not support",
        },
    ),
    (
        r"ties='docid' (breaks ties by document id); pass docids, in the shape of scores",
        {"evaluate": r"--ties docid \1, and the documents of --labels have no ids"},
    ),
    (r"pass empty=0, 1 or 'skip'", {"evaluate": "give --empty 0, 1 or skip"}),
    (r"use ties='input', 'worst' or 'docid'.*", {"evaluate": "use --ties input, worst or docid"}),
    (
        r"convention='letor' (.*); leave ties and empty at their defaults \(.*?\)(?:, or .*)?",
        {"evaluate": r"--convention letor \1; remove --ties and --empty, or --convention"},
    ),
)


def as_options(command: str, message: str) -> str:
    """Translate a message of the library for a command.

    >>> as_options("evaluate", "a.txt:1: expected a grade, got '0.5'; labels='real' takes any number")
    "a.txt:1: expected a grade, got '0.5'; --real-labels takes any number"
    >>> as_options("rank", "a.txt:1: expected a grade, got '0.5'; labels='real' takes any number")
    "a.txt:1: expected a grade, got '0.5'; correct it"
    """
    for pattern, said in _ADVICE:
        if (instead := said.get(command, said.get(_ANY))) is not None:
            message = re.sub(pattern, re.sub(r"\\(\d)", r"\\g<\1>", instead), message, flags=re.DOTALL)
    return message
