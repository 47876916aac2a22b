"""Advice of the library's errors, in the words of a command: its options in place of a function's arguments.

What a command has no option for is not said, or something that its user can do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Commands whose data are those of a config.
_CONFIGS = ("fit", "validate", "test", "predict", "cross-validate", "compare", "tune", "fit-exact", "experiment")
_ANY = ""


def _configs(said: str) -> dict[str, str]:
    return dict.fromkeys(_CONFIGS, said)


#: What a message says; and what by command, "" for all others.
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
            "predict": "; in training they began at 1",
            _ANY: "; --zero-based takes ids from 0",
        },
    ),
    (
        r"omitted='zero' takes what a line leaves out as 0",
        {_ANY: "write the zeros of such lines too, or none in the file"},
    ),
    (
        r"; pass a greater num_features=",
        {"predict": "; the model was trained on no others", "convert": "; give a greater --num-features", _ANY: ""},
    ),
    (r"; convert with num_features=", {_ANY: "; `rankstruct convert --num-features` makes a file that has them"}),
    (r"; read them with one num_features=", {_ANY: ""}),
    (r"give sparse=True where most are 0, or convert the file", {_ANY: "convert the file, `rankstruct convert`"}),
    (r" \(another file: group_file=\)", {"convert": " (another file: --group-file)", _ANY: ""}),
    (
        r" in a file \(group_file=\)",
        {"convert": " in a file (--group-file)", _ANY: " in a file of its name with .query behind it"},
    ),
    (
        r"since group_file= gives the lists; leave group_file out",
        {_ANY: "since --group-file gives the lists; leave it out"},
    ),
    (
        r"; protocol='cross-validation' of a Source makes queries of them",
        {**_configs("; --data.protocol cross-validation makes queries of them"), "predict": "", _ANY: ""},
    ),
    (
        r"; leave out fold \(--data\.fold null\), or, .*?\(--data\.protocol cross-validation\)",
        {"convert": "; leave out --folds"},
    ),
    (r"; give fold \(--data\.fold\) to choose one", {"convert": "; give --folds"}),
    (
        r"needs groups=, one id a document: its host or topic",
        {
            **_configs("needs groups of documents; data.groups says where they come from"),
            _ANY: "needs groups, which lists of this command have not",
        },
    ),
    (
        r"ties='docid' (breaks ties by document id); pass docids, in the shape of scores",
        {"evaluate": r"--ties docid \1, and the documents of --labels have none"},
    ),
    (r"pass empty=0, 1 or 'skip'", {"evaluate": "give --empty 0, 1 or skip"}),
    (r"choose ties='input', 'worst' or 'docid'.*", {"evaluate": "choose --ties input, worst or docid"}),
    (
        r"convention='letor' keeps (.*); leave ties and empty at their defaults \(.*?\)",
        {"evaluate": r"--convention letor keeps \1; leave out --ties and --empty"},
    ),
)


def as_options(command: str, message: str) -> str:
    """A message of the library as a command says it.

    >>> as_options("evaluate", "a.txt:1: expected a grade, got '0.5'; labels='real' takes any number")
    "a.txt:1: expected a grade, got '0.5'; --real-labels takes any number"
    >>> as_options("rank", "a.txt:1: expected a grade, got '0.5'; labels='real' takes any number")
    "a.txt:1: expected a grade, got '0.5'; correct it"
    """
    for pattern, said in _ADVICE:
        if (instead := said.get(command, said.get(_ANY))) is not None:
            message = re.sub(pattern, instead.replace("\\1", r"\g<1>"), message, flags=re.DOTALL)
    return message
