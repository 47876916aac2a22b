"""Feed damaged files to everything that reads: `python scripts/fuzz.py --inputs 100000 --seed 0`.

An input is a small valid file that a seed decides, damaged by a few mutations (bits, pieces, lines, numbers, encodings). What
the library makes of it must equal what the plain parsers of tests/plain_parsers.py read, or be the documented error where
those refuse the file; within 10 seconds of a processor and 1 GB. Inputs go to processes with these limits, so that a crash
or a hang is a finding too.
The input number n of a kind is the same in every run with the same seed: `--kind svmlight --only n` runs it alone.

This runs from a checkout, on Linux.
"""

import argparse
import contextlib
import io
import itertools
import json
import logging
import math
import multiprocessing
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from gzip import compress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
import yaml

import rankstruct as rs
from rankstruct.cli import main as rankstruct
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.data import (
    DataError,
    RankingData,
    convert_lists,
    read_arff,
    read_csv,
    read_lists,
    read_qrels,
    read_run,
    read_scores,
    read_svmlight,
)
from rankstruct.files import write_text
from rankstruct.models import load_scorer, save_scorer
from rankstruct.progress import Progress
from rankstruct.recommenders import read_ratings, read_titles
from rankstruct.tables import format_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import plain_parsers as plain
from plain_parsers import Refused, Unsure

ROOT = Path(__file__).parents[1]
SECONDS, BYTES, MESSAGE = 10, 2**30, 2000
Input = tuple[bytes, dict[str, Any]]


class Kind(NamedTuple):
    """What is fuzzed.

    Attributes:
        make: a valid file, and the options that both sides read it with.
        read: what the library reads from a path, in plain lists and dictionaries.
        expect: the same from the bytes, or `Refused`, or `Unsure`.
        share: of all inputs; slow ones have a small one.
        name: of the file.
        errors: that are documented.
    """

    make: Callable[[Random], Input]
    read: Callable[..., Any]
    expect: Callable[..., Any]
    share: float = 1.0
    name: str = "input.txt"
    errors: tuple[type[Exception], ...] = (DataError,)


# ----------------------------------------------------------------------------------------------------------------------
# Mutations

# fmt: off
EDGES = [
    "0", "-0", "+5", ".5", "5.", "-.5e-3", "1e400", "-1e400", "1e-400", "3.4028235e38", "3.4028236e38", "1.17549435e-38", "nan",
    "inf", "-Infinity", "1_000", "0x10", "1e", "e5", "--1", "NULL", "null", "", "2147483646", "2147483647", "4294967296",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616", "99999999999999999999",
    "16777217", "0.1000000014901161193847656250000001", "1" * 400, "0." + "3" * 400, "0" * 30 + "7", "１２", "٣", "1\u00a0", "½",
]
PIECES = [
    b" ", b"\n", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"\x00", b"\xff", b"::", b'""', b"qid:", b"qid:a", b"docid = ", b"1:",
    b"@data\n", b"@attribute x numeric\n", b"&a ", b"*a", b"!!python/object/apply:os.getcwd []",
    *(letter.encode() for letter in "\r\t#%\x0b\x0c\x1c\x85\u2028\u3000é\"',;|:={}"),
]
# fmt: on


def flip_bits(content: bytearray, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def cut_end(content: bytearray, rng: Random) -> None:
    del content[rng.randrange(len(content)) :]


def insert_piece(content: bytearray, rng: Random) -> None:
    at = rng.randrange(len(content) + 1)
    content[at:at] = rng.choice([*PIECES, rng.choice(EDGES).encode(), rng.randbytes(rng.randrange(1, 9))])


def delete_piece(content: bytearray, rng: Random) -> None:
    at = rng.randrange(len(content))
    del content[at : at + rng.choice((1, 1, 2, 5, 20))]


def repeat_piece(content: bytearray, rng: Random) -> None:
    at, size = rng.randrange(len(content)), rng.choice((1, 3, 20, 100))
    times = rng.choices((1, 2, 50, 2000), (6, 3, 1, 0.1))[0]
    content[at:at] = content[at : at + size] * times


def change_lines(content: bytearray, rng: Random) -> None:
    rows = content.split(b"\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    way = rng.randrange(4)
    if way == 0:
        del rows[i]
    elif way == 1:
        rows.insert(j, rows[i])
    elif way == 2:
        rows[i], rows[j] = rows[j], rows[i]
    else:
        rows[i] = rng.choice((b"", b" ", b"# remark", b"% remark", b"\r"))
    content[:] = b"\n".join(rows)


def change_number(content: bytearray, rng: Random) -> None:
    """Put an edge case in the place of one run of digits."""
    starts = [i for i, byte in enumerate(content[:20_000]) if 48 <= byte <= 57]
    if starts:
        first = last = rng.choice(starts)
        while last < len(content) and content[last] in b"0123456789.eE+-":
            last += 1
        content[first:last] = rng.choice(EDGES).encode()


def encode(content: bytearray, rng: Random) -> None:
    text = content.decode("latin-1")
    way = rng.randrange(4)
    if way == 0:
        content[:0] = b"\xef\xbb\xbf"
    elif way == 1:
        content[:] = text.encode("utf-16")
    else:
        content[:] = content.replace(b"\n", (b"\r\n", b"\r")[way - 2])


MUTATIONS = (flip_bits, cut_end, insert_piece, delete_piece, repeat_piece, change_lines, change_number, encode)


def mutate(content: bytes, rng: Random) -> bytes:
    """A file with none to four mutations."""
    damaged = bytearray(content)
    for _ in range(rng.choices(range(5), (1, 8, 4, 2, 1))[0]):
        if damaged:
            rng.choices(MUTATIONS, (3, 1, 3, 2, 2, 3, 4, 1))[0](damaged, rng)
    return bytes(damaged[:2_000_000])


# ----------------------------------------------------------------------------------------------------------------------
# Kinds


def some_number(rng: Random) -> str:
    return rng.choice(
        (f"{rng.gauss(0, 1):.6g}", f"{rng.random():.3f}", str(rng.randrange(10)), repr(rng.gauss(0, 1e3)), "0")
    )


def some_name(rng: Random, letter: str) -> str:
    return rng.choice((f"{letter}{rng.randrange(30)}", f"{letter}é{rng.randrange(9)}", str(rng.randrange(10**6))))


def document_lines(rng: Random, *, with_qid: bool) -> str:
    width, full = rng.randrange(1, 8), rng.random() < 0.5
    names = dict.fromkeys(some_name(rng, "q") for _ in range(rng.randrange(1, 5)))
    rows = []
    for name in names:
        for _ in range(rng.randrange(1, 5)):
            kept = [i for i in range(1, width + 1) if full or not rows or rng.random() < 0.5]
            values = " ".join(f"{i}:{'NULL' if rng.random() < 0.02 else some_number(rng)}" for i in kept)
            remark = rng.choice(("", "", f" # docid = {some_name(rng, 'd')}", f" #{some_name(rng, 'd')}", " # a b = c"))
            rows.append(f"{rng.randrange(3)} {f'qid:{name} ' * with_qid}{values}{remark}")
    return "\n".join(rows) + rng.choice(("\n", "", "\n\n"))


def svmlight_input(rng: Random) -> Input:
    options = {"labels": rng.choice(("grades", "real")), "omitted": rng.choice(("check", "zero"))}
    options |= {"fill": rng.choice((0.0, -1.5)), "sparse": rng.choice(("auto", True, False))}
    return document_lines(rng, with_qid=True).encode(), options


def lists_of(data: RankingData) -> dict:
    """Data as `plain.svmlight` gives them."""
    if data.is_sparse:
        bounds = data.features.indptr.tolist()
        entries = list(zip(data.features.indices.tolist(), data.features.data.tolist(), strict=True))
        rows = [dict(entries[first:last]) for first, last in itertools.pairwise(bounds)]
    else:
        rows = [dict(enumerate(row)) for row in data.features.tolist()]
    optional = {name: getattr(data, name) for name in ("missing", "docids", "comments")}
    return {name: None if each is None else list(each.tolist()) for name, each in optional.items()} | {
        "rows": [{i + 1: x for i, x in row.items() if x} for row in rows],
        "labels": data.labels.tolist(),
        "width": data.num_features,
        "qids": data.qids.tolist(),
        "lengths": data.lengths.tolist(),
    }


def read_documents(path: Path, **options: Any) -> dict:
    return lists_of(read_svmlight(path, cache=False, **options))


def expect_documents(content: bytes, sparse: object = None, **options: Any) -> dict:
    found = plain.svmlight(content, **options)
    if sparse is False and len(found["rows"]) * found["width"] > BYTES // 16:
        raise Unsure("whether there is memory for so many numbers, and for looking at them")
    return found


def group_input(rng: Random) -> Input:
    text = document_lines(rng, with_qid=False)
    left, sizes = sum(bool(line) for line in text.split("\n")), []
    while left:
        sizes.append(rng.randrange(1, left + 1))
        left -= sizes[-1]
    return rng.choice(("\n", " ")).join(map(str, sizes)).encode(), {"documents": text.encode()}


def read_with_groups(path: Path, documents: bytes) -> dict:
    (path.parent / "lists.txt").write_bytes(documents)
    return lists_of(read_svmlight(path.parent / "lists.txt", group_file=path, omitted="zero", cache=False))


def expect_groups(content: bytes, documents: bytes) -> dict:
    if not content:
        raise Refused("empty")
    return plain.svmlight(documents, sizes=content, omitted="zero")


def gzip_input(rng: Random) -> Input:
    text = document_lines(rng, with_qid=True).encode()
    if rng.random() < 0.003:  # a bomb: 300 kB become 300 MB
        bomb = zlib.compressobj(1, wbits=31)
        pieces = [bomb.compress(text), *(bomb.compress(b"\n" * 10**6) for _ in range(300)), bomb.flush()]
        return b"".join(pieces), {"omitted": "zero"}
    size = rng.randrange(len(text))
    packed = (compress(mutate(text, rng)), compress(text), compress(text[:size]) + compress(text[size:]))
    return rng.choice(packed), {"omitted": "zero"}


def expect_gzip(content: bytes, omitted: str) -> dict:
    if len(content) > 250_000:
        raise Unsure("a bomb")
    return plain.svmlight(content, omitted=omitted)


def class_rows(rng: Random) -> tuple[list[str], list[list[str]]]:
    names = [f"x{i}" for i in range(rng.randrange(1, 5))]
    rows = [[*(some_number(rng) for _ in names), rng.choice("ab")] for _ in range(rng.randrange(1, 8))]
    return names, rows


def csv_input(rng: Random) -> Input:
    names, rows = class_rows(rng)
    quote = rng.choice(("", '"'))
    return "\n".join(
        ",".join(f"{quote}{cell}{quote}" for cell in row) for row in [[*names, "class"], *rows]
    ).encode(), {}


def arff_input(rng: Random) -> Input:
    names, rows = class_rows(rng)
    quote = rng.choice(("", "'"))
    head = "".join(f"@ATTRIBUTE {quote}{name}{quote} NUMERIC\n" for name in names)
    body = "\n".join(",".join(row) for row in rows)
    return f"% remark\n@relation r\n{head}@attribute class {{a,b}}\n@DATA\n{body}\n".encode(), {}


def read_classes(path: Path) -> dict:
    table = (read_csv if path.suffix == ".csv" else read_arff)(path)
    return {"names": table.names, "classes": table.classes.tolist(), "features": table.features.tolist()}


def run_input(rng: Random) -> Input:
    rows = [
        f"{query} Q0 {docid} {rank} {some_number(rng)} tag"
        for query in dict.fromkeys(some_name(rng, "q") for _ in range(3))
        for rank, docid in enumerate(dict.fromkeys(some_name(rng, "d") for _ in range(rng.randrange(1, 6))))
    ]
    return ("\n".join(rows) + "\n").encode(), {}


def qrels_input(rng: Random) -> Input:
    pairs = dict.fromkeys((some_name(rng, "q"), some_name(rng, "d")) for _ in range(rng.randrange(1, 12)))
    return "".join(f"{query} 0 {docid} {rng.randrange(-1, 4)}\n" for query, docid in pairs).encode(), {}


def scores_input(rng: Random) -> Input:
    before = "x " * rng.randrange(2)
    return "".join(f"{before}{some_number(rng)}\n" for _ in range(rng.randrange(1, 9))).encode(), {}


RATINGS = {
    "movielens100k": ("\t", (4,), "stars"),
    "movielens1m": ("::", (4,), "stars"),
    "jester": (None, (3,), "centred"),
    "text": (None, (3, 4), "binary"),
    "csv": (",", (3, 4), "stars"),
}


def ratings_input(rng: Random) -> Input:
    form = rng.choice(list(RATINGS))
    separator, columns, scale = RATINGS[form]
    pairs = dict.fromkeys((some_name(rng, "u"), some_name(rng, "i")) for _ in range(rng.randrange(1, 12)))
    lowest, highest = plain.SCALES[scale]
    rows = [[*pair, str(rng.randint(lowest, highest)), "881250949"][: columns[0]] for pair in pairs]
    if form == "csv" and rng.random() < 0.5:
        rows = [["item", "user", "rating"], *([item, user, rating] for user, item, rating in rows)]
    return "\n".join((separator or " ").join(row) for row in rows).encode(), {"form": form}


def ratings_of(path: Path, form: str) -> dict:
    found = read_ratings(path, form, scale=RATINGS[form][2])
    users, items = found.user_names.tolist(), found.item_names.tolist()
    rows = zip(found.user.tolist(), found.item.tolist(), found.rating.tolist(), strict=True)
    return {(users[user], items[item]): rating for user, item, rating in rows}


def titles_input(rng: Random) -> Input:
    between = rng.choice(("|", "::"))
    return "".join(f"{i}{between}{some_name(rng, 'film ')}{between}x\n" for i in range(1, 9)).encode("latin-1"), {}


def cache_input(rng: Random) -> Input:
    """A file of the cache; a fifth get the right checksum after the damage."""
    text = document_lines(rng, with_qid=True).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lists.txt")
        path.write_bytes(text)
        read_svmlight(path, omitted="zero", cache=folder)
        return next(Path(folder).glob("*.rankdata")).read_bytes(), {"documents": text, "crafted": rng.random() < 0.2}


def map_input(rng: Random) -> Input:
    """A converted file, which is read where it is."""
    text = document_lines(rng, with_qid=True).encode()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "lists.txt").write_bytes(text)
        convert_lists(f"{folder}/lists.txt", f"{folder}/lists.rankdata", omitted="zero")
        return Path(folder, "lists.rankdata").read_bytes(), {"documents": text}


def read_through_cache(path: Path, documents: bytes, crafted: bool) -> dict:
    content = path.read_bytes()
    if crafted and len(content) > 12:  # magic, CRC-32 of what follows, the rest
        content = content[:8] + struct.pack("<I", zlib.crc32(content[12:])) + content[12:]
    text, folder = path.parent / "lists.txt", path.parent / "cache"
    text.write_bytes(documents)
    read_svmlight(text, omitted="zero", cache=folder)
    next(folder.glob("*.rankdata")).write_bytes(content)
    try:
        return lists_of(read_svmlight(text, omitted="zero", cache=folder))
    finally:
        shutil.rmtree(folder)


def expect_cached(content: bytes, documents: bytes, crafted: bool) -> dict:
    if crafted:
        raise Unsure("what a crafted file says is taken")
    return plain.svmlight(documents, omitted="zero")


class Either(NamedTuple):
    """What is read is this, or it is refused."""

    value: Any


def scorer_input(rng: Random) -> Input:
    torch.manual_seed(rng.randrange(2**32))
    scorer = rng.choice((lambda: rs.LinearScorer(5), lambda: rs.MLPScorer(3, hidden=(4,), normalize=True)))()
    for parameter in scorer.parameters():
        torch.nn.init.normal_(parameter)
    with tempfile.TemporaryDirectory() as folder:
        save_scorer(scorer, f"{folder}/scorer.pt")
        return Path(folder, "scorer.pt").read_bytes(), {"weights": weights_of(scorer)}


def weights_of(scorer: torch.nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in scorer.state_dict().items()}


def read_weights(path: Path, weights: object) -> dict[str, bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return weights_of(load_scorer(path))


def expect_weights(content: bytes, weights: dict[str, bytes]) -> Either:
    return Either(weights)


def cell_input(rng: Random) -> Input:
    result = {
        "best": {"epoch": rng.randrange(9)},
        "test": {"AP": rng.random(), "RR": None},
        "path": [some_name(rng, "x")],
    }
    return json.dumps(result, indent=2).encode(), {}


def read_cell(path: Path) -> Any:
    shutil.rmtree(path.parent / "one", ignore_errors=True)
    with CellFolders(path.parent) as store:
        store.find(Cell("one", {"config": "a"}, ()))
        shutil.copyfile(path, path.parent / "one" / "result.json")
        return store.find(Cell("one", {"config": "a"}, ()))


def expect_cell(content: bytes) -> Any:
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError):
        raise Refused("no JSON") from None


class Said(ValueError):
    """A command ended with one line and the exit code of an error."""


def command(*arguments: str) -> str:
    """What a command prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = rankstruct(arguments)
        except SystemExit as end:
            code = end.code
    said = err.getvalue().strip()
    if code in (1, 2) and said and "Traceback" not in said:
        raise Said(" ".join(said.split())[:MESSAGE])  # the parser of configs says several lines, with what was given
    if code not in (0, None):
        raise AssertionError(f"exit code {code!r} with {len(said.splitlines())} lines: {said[-300:]}")
    return out.getvalue()


def config_input(pattern: str) -> Callable[[Random], Input]:
    files = [path for path in sorted((ROOT / "configs").glob(pattern)) if path.name != "exact-diverse.yaml"]

    def make(rng: Random) -> Input:
        content = rng.choice(files).read_bytes()
        if rng.random() < 0.005:  # a bomb of aliases
            bomb = [
                b"a0: &a0 [0, 0]",
                *(b"a%d: &a%d [%s]" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 9)),
            ]
            content = b"\n".join([*bomb, content])
        return content, {}

    return make


def numbers_in(content: bytes) -> dict[str, float]:
    """The numbers of a YAML file by the names that lead to them."""
    found: dict[str, float] = {}
    if b"&" in content or b"\t" in content:  # aliases may make it endless; what tabs are depends on the YAML library
        return found
    try:
        every = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise Refused("no YAML") from None

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                visit(f"{prefix}.{key}", each)
        elif isinstance(value, int | float):
            found[prefix] = value

    visit("", every)
    return found


def read_fit_config(path: Path) -> dict[str, float]:
    printed = numbers_in(command("fit", "--config", str(path), "--print_config").encode())
    return {name: printed.get(name, value) for name, value in numbers_in(path.read_bytes()).items()}


def expect_numbers(content: bytes) -> Either:
    return Either(numbers_in(content))


def read_config(path: Path, name: str) -> dict[str, float]:
    nowhere = str(path.parent / "nowhere")
    try:
        command(name, "--config", str(path), "--output", f"{nowhere}-out", "--data.path", nowhere)
    except Said as said:
        if "no such file or folder" not in str(said):
            raise
    return numbers_in(path.read_bytes())


read_exact_config = partial(read_config, name="fit-exact")
read_plan_config = partial(read_config, name="experiment")

MEASURES = [
    "AP",
    "nDCG@10",
    "RR@10",
    "nDCG(gain='linear')@10",
    "ERU(d=3,half_life=5)",
    "P@5",
    "diverse_nDCG@5",
    "DCG",
    "AUC",
    "pAUC(low=0.02,high=0.1)",
]


def measure_input(rng: Random) -> Input:
    return rng.choice(MEASURES).encode(), {}


def read_measure(path: Path) -> str:
    measure = rs.parse_measure(path.read_bytes().decode("utf-8", "surrogateescape"))
    assert rs.parse_measure(measure.name).name == measure.name, f"{measure.name!r} has another name when read again"
    return "measure"


def expect_measure(content: bytes) -> Either | str:
    return "measure" if content.decode("utf-8", "replace") in MEASURES else Either("measure")


_VALUE = (ValueError,)
KINDS = {
    "svmlight": Kind(svmlight_input, read_documents, expect_documents, 4),
    "groups": Kind(group_input, read_with_groups, expect_groups, 2),
    "gzip": Kind(gzip_input, read_documents, expect_gzip, 1, "input.txt.gz"),
    "csv": Kind(csv_input, read_classes, plain.csv_classes, 2, "input.csv"),
    "arff": Kind(arff_input, read_classes, plain.arff_classes, 2, "input.arff"),
    "run": Kind(run_input, read_run, lambda content: plain.table(content, 6, 4, whole=False), 2),
    "qrels": Kind(qrels_input, read_qrels, lambda content: plain.table(content, 4, 3, whole=True), 2),
    "scores": Kind(scores_input, lambda path: read_scores(path).tolist(), plain.scores),
    "ratings": Kind(ratings_input, ratings_of, lambda content, form: plain.ratings(content, *RATINGS[form]), 3),
    "titles": Kind(titles_input, read_titles, plain.titles, 0.5),
    "cache": Kind(cache_input, read_through_cache, expect_cached, 1),
    "map": Kind(
        map_input,
        lambda path, documents: lists_of(read_lists(path)),
        lambda content, documents: Either(plain.svmlight(documents, omitted="zero")),
        1,
        "lists.rankdata",
    ),
    "cell": Kind(cell_input, read_cell, expect_cell, 1, "given.json", _VALUE),
    "measure": Kind(measure_input, read_measure, expect_measure, 1, errors=_VALUE),
    "scorer": Kind(scorer_input, read_weights, expect_weights, 1, "scorer.pt", _VALUE),
    "fit config": Kind(config_input("[l-s]*.yaml"), read_fit_config, expect_numbers, 0.1, "c.yaml", _VALUE),
    "exact config": Kind(config_input("exact-*.yaml"), read_exact_config, expect_numbers, 0.3, "c.yaml", _VALUE),
    "plan config": Kind(
        config_input("experiment-*.yaml"),
        read_plan_config,
        expect_numbers,
        0.2,
        "c.yaml",
        _VALUE,
    ),
}


# ----------------------------------------------------------------------------------------------------------------------
# One input


def same(found: Any, expected: Any) -> bool:
    """Equal, with NaN equal to itself."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in found)
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected or (found != found and expected != expected)


def make_input(kind: str, seed: int, number: int) -> Input:
    """The bytes of an input and its options."""
    rng = Random(f"{seed} {kind} {number}")
    content, options = KINDS[kind].make(rng)
    return mutate(content, rng), options


def judge(kind: str, content: bytes, options: dict[str, Any], path: Path) -> str:
    """`"equal"` or `"refused"`; anything else is what is wrong."""
    path.write_bytes(content)
    try:
        expected, refused = KINDS[kind].expect(content, **options), None
    except (Refused, Unsure) as error:
        expected, refused = None, error
    try:
        found = KINDS[kind].read(path, **options)
    except KINDS[kind].errors as error:
        said = str(error)
        if "\n" in said or len(said) > MESSAGE:
            return f"a message of {len(said)} letters in {said.count(chr(10)) + 1} lines: {said[:80]!r}"
        if refused is None and not isinstance(expected, Either):
            return f"refused what the plain parser reads: {said.replace(str(path.parent), '')}"
        return "refused"
    except Exception as error:
        if isinstance(error, MemoryError) and isinstance(refused, Unsure):
            return "refused"
        return f"{type(error).__name__} in place of {KINDS[kind].errors[0].__name__}: {str(error)[:200]}"
    if isinstance(refused, Refused):
        return f"taken, where the plain parser says: {refused}"
    expected = expected.value if isinstance(expected, Either) else expected
    if refused is None and not same(found, expected):
        differs = (
            [key for key in expected if not same(found.get(key), expected[key])] if isinstance(found, dict) else []
        )
        return f"another result{': ' + ', '.join(map(str, differs[:5])) if differs else ''}"
    return "equal"


# ----------------------------------------------------------------------------------------------------------------------
# Processes


def work(kind: str, seed: int, numbers: range, folder: str, answers: Connection) -> None:
    """Judge inputs one after another; the system ends this process at one that takes too long, or gives it no more memory."""
    for each in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + BYTES, used + BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path = Path(tempfile.mkdtemp(dir=folder)) / KINDS[kind].name
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for number in numbers:
        content, options = make_input(kind, seed, number)
        limit(SECONDS)
        start = time.process_time()
        said = judge(kind, content, options, path)
        spent = time.process_time() - start
        limit(0)
        answers.send((number, said, spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    answers.close()


def limit(seconds: int) -> None:
    """End this process after so many seconds of its processor, or of waiting for nothing; 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(30 * seconds)


class Outcome(NamedTuple):
    """What became of an input."""

    number: int
    said: str
    seconds: float = 0.0
    kilobytes: int = 0


def outcomes(kind: str, seed: int, numbers: range, processes: int, folder: str) -> Iterator[Outcome]:
    """Those of inputs of a kind; a process that ends before its last input is replaced, from the next one on."""
    context = multiprocessing.get_context("fork")
    alive: dict[Connection, tuple[Any, range]] = {}

    def start(numbers: range) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(kind, seed, numbers, folder, theirs), daemon=True)
        process.start()
        theirs.close()
        alive[ours] = (process, numbers)

    try:
        for first in range(min(processes, len(numbers))):
            start(numbers[first::processes])
        while alive:
            for ready in wait(list(alive)):
                process, left = alive.pop(ready)  # type: ignore[call-overload]
                try:
                    outcome = Outcome(*ready.recv())  # type: ignore[union-attr]
                except EOFError:
                    process.join()
                    if left:
                        slow = process.exitcode in (-signal.SIGALRM, -signal.SIGPROF)
                        how = "too slow" if slow else f"ended with {process.exitcode}"
                        yield Outcome(left[0], f"the process was {how}")
                        start(left[1:])
                    continue
                alive[ready] = (process, left[1:])  # type: ignore[index]
                yield outcome
    finally:
        for process, _ in alive.values():
            process.kill()


class Tally:
    """What became of the inputs of a kind."""

    def __init__(self, kind: str, options: argparse.Namespace) -> None:
        self.kind, self.options = kind, options
        self.counts: Counter[str] = Counter()
        self.shown: Counter[str] = Counter()
        self.slowest, self.grown = 0.0, 0.0

    def run(self, numbers: range, folder: str, bar: Progress, end: float) -> None:
        """Judge inputs until a time."""
        least = math.inf
        for outcome in outcomes(self.kind, self.options.seed, numbers, self.options.processes, folder):
            self.counts[outcome.said if outcome.said in ("equal", "refused") else "finding"] += 1
            self.slowest = max(self.slowest, outcome.seconds)
            if outcome.kilobytes:
                least = min(least, outcome.kilobytes)
                self.grown = max(self.grown, (outcome.kilobytes - least) / 1024)
            bar.update()
            if outcome.said not in ("equal", "refused"):
                self.note(outcome, bar)
            if time.monotonic() > end:
                return

    def note(self, outcome: Outcome, bar: Progress) -> None:
        """Print a finding, the first few of its sort, and keep its input."""
        self.shown[outcome.said[:40]] += 1
        if self.shown[outcome.said[:40]] <= self.options.show:
            bar.write(f"{self.kind} {outcome.number}: {outcome.said}")
        if self.options.save:
            content, given = make_input(self.kind, self.options.seed, outcome.number)
            path = Path(self.options.save, f"{self.kind.replace(' ', '-')}-{self.options.seed}-{outcome.number}")
            write_text(f"{path}.txt", f"{outcome.said}\n{given}\n")
            Path(f"{path}.bin").write_bytes(content)

    def row(self) -> list:
        """Of the table."""
        counts = [sum(self.counts.values()), *(self.counts[name] for name in ("equal", "refused", "finding"))]
        return [self.kind, *counts, f"{self.slowest:.2f}", round(self.grown)]


def warm(kinds: list[str]) -> None:
    """Compile and import what the processes share, before they are forked."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            content, options = KINDS[kind].make(Random(0))
            judge(kind, content, options, Path(folder, KINDS[kind].name))


def fuzz(options: argparse.Namespace, folder: str) -> list[list]:
    """The rows of the table; kinds take turns, so that a run that is stopped by time has seen all of them."""
    shares = sum(KINDS[kind].share for kind in options.kind)
    counts = {kind: math.ceil(options.inputs * KINDS[kind].share / shares) for kind in options.kind}
    tallies = {kind: Tally(kind, options) for kind in options.kind}
    turns = 1 + options.inputs // 10_000
    end = time.monotonic() + options.seconds
    with Progress(total=sum(counts.values()), unit="input") as bar:
        for turn in range(turns):
            for kind, tally in tallies.items():
                if time.monotonic() < end:
                    tally.run(range(counts[kind] * turn // turns, counts[kind] * (turn + 1) // turns), folder, bar, end)
    return [tally.row() for tally in tallies.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="of all kinds together (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so many (default: never)")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), default=list(KINDS), help="(default: all)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--only", type=int, help="the number of one input, judged in this process")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="(default: %(default)s)")
    parser.add_argument(
        "--show", type=int, default=3, help="findings of a sort that are printed (default: %(default)s)"
    )
    parser.add_argument("--save", help="folder for the inputs of findings")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        if options.only is not None:
            for kind in options.kind:
                content, given = make_input(kind, options.seed, options.only)
                print(
                    f"{content!r}\n{given}\n{kind} {options.only}:",
                    judge(kind, content, given, Path(folder, KINDS[kind].name)),
                )
            return 0
        warm(options.kind)
        rows = fuzz(options, folder)
    rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, 5)), "", ""])
    header = ["kind", "inputs", "equal", "refused", "findings", "slowest, s", "memory, MB"]
    print(format_table(header, rows))
    return 1 if rows[-1][4] else 0


if __name__ == "__main__":
    sys.exit(main())
