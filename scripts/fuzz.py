"""Feed damaged files to everything that reads: `python scripts/fuzz.py --inputs 100000 --seed 0`.

An input is a small valid file that a seed decides, damaged by a few mutations (bits, pieces, lines, numbers, encodings); or a
table of columns of any type, an array of any kind, a config with a misspelt key. What
the library makes of it must equal what the plain parsers of tests/plain_parsers.py read, or be the documented error where
those refuse the file; within 10 seconds of a processor and 1 GB. Inputs go to processes with these limits, so that a crash
or a hang is a finding too.
The input number n of a kind is the same in every run with the same seed: `--kind svmlight --only n` runs it alone.

This runs from a checkout, on Linux.
"""

import argparse
import bz2
import contextlib
import datetime
import io
import itertools
import json
import logging
import lzma
import math
import multiprocessing
import os
import re
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
from decimal import Decimal
from fractions import Fraction
from functools import partial
from gzip import compress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import torch
import yaml

import rankstruct as rs
from papers.classes import read_arff, read_csv
from rankstruct.commands._arguments import CommandParser
from rankstruct.commands.cells import Cell, CellFolders
from rankstruct.configs import read_config as read_yaml
from rankstruct.data import (
    DataError,
    RankingData,
    convert_lists,
    read_lists,
    read_qrels,
    read_run,
    read_scores,
    read_svmlight,
)
from rankstruct.files import write_text
from rankstruct.models import load_scorer, save_scorer
from rankstruct.progress import Progress
from rankstruct.recommenders import read_ratings
from rankstruct.text_tables import format_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import plain_parsers as plain
import programs
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
        damaged: the share that is mutated.
    """

    make: Callable[[Random], Input]
    read: Callable[..., Any]
    expect: Callable[..., Any]
    share: float = 1.0
    name: str = "input.txt"
    errors: tuple[type[Exception], ...] = (DataError,)
    damaged: float = 1.0


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
    *(letter.encode() for letter in "\r\t#%\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000\u200b\ufeffé\"',;|:={}"),
    b"TRUE", b"false", b"QID:",
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


# Blanks of Unicode, its line ends, marks, what begins remarks, quotes, separators of other formats.
ODD = "\u00a0\u2003\u3000\u202f\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e\x1f\ufeff\u200b#:;,|\"'=é漢"


def some_name(rng: Random, letter: str, odd: float = 0.04) -> str:
    """A name; now and then one of odd letters, or with a blank."""
    if rng.random() < odd:
        return "".join(rng.choice(rng.choice(("ab1", ODD, ODD + " "))) for _ in range(rng.randrange(1, 5)))
    return rng.choice((f"{letter}{rng.randrange(30)}", f"{letter}é{rng.randrange(9)}", str(rng.randrange(10**6))))


def laid_out(rows: list[list[str]], rng: Random, between: str | None = None) -> bytes:
    """Lines of fields, with the separators, line ends and encodings of some program."""
    odd = rng.random() < 0.1
    if between is None or odd:
        usual = ("\t", " ", "  ", " \t ")
        between = rng.choice((*usual, "\u00a0", "\u3000", "\x0b", ",") if odd else usual)
    end = rng.choice(("\n", "\r\n", "\r", "\u2028", "\x85")) if rng.random() < 0.2 else "\n"
    text = end.join(between.join(row) for row in rows) + rng.choice((end, end, "", 2 * end))
    odd = rng.random() < 0.1
    return text.encode(rng.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")) if odd else "utf-8")


def document_rows(rng: Random, *, with_qid: bool, base: int = 1, odd: float = 0.04) -> list[list[str]]:
    width, full = rng.randrange(1, 8), rng.random() < 0.5
    rows = []
    for name in dict.fromkeys(some_name(rng, "q", odd) for _ in range(rng.randrange(1, 5))):
        for _ in range(rng.randrange(1, 5)):
            kept = [i for i in range(base, width + base) if full or not rows or rng.random() < 0.5]
            values = [f"{i}:{'NULL' if rng.random() < 0.02 else some_number(rng)}" for i in kept]
            remark = rng.choice(("", "", f"# docid = {some_name(rng, 'd')}", f"#{some_name(rng, 'd')}", "# a b = c"))
            qid = rng.choices(("qid", "QID"), (9, 1))[0]
            rows.append([str(rng.randrange(3)), *[f"{qid}:{name}"] * with_qid, *values, *[remark] * bool(remark)])
    return rows


def document_lines(rng: Random, *, with_qid: bool, odd: float = 0.04) -> str:
    rows = document_rows(rng, with_qid=with_qid, odd=odd)
    return "\n".join(map(" ".join, rows)) + rng.choice(("\n", "", "\n\n"))


def svmlight_input(rng: Random) -> Input:
    options = {"labels": rng.choice(("grades", "real")), "omitted": rng.choice(("check", "zero"))}
    options |= {"fill": rng.choice((0.0, -1.5)), "sparse": rng.choice(("auto", True, False))}
    options["zero_based"] = rng.random() < 0.15
    return laid_out(document_rows(rng, with_qid=True, base=int(not options["zero_based"])), rng), options


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
        "rows": [{i + 1: None if math.isnan(x) else x for i, x in row.items() if x} for row in rows],
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
        raise Unsure("whether there is memory for that many numbers, and for looking at them")
    return found


def group_input(rng: Random) -> Input:
    text = document_lines(rng, with_qid=False)
    left, sizes = sum(bool(line) for line in text.split("\n")), []
    while left:
        sizes.append(rng.randrange(1, left + 1))
        left -= sizes[-1]
    return laid_out([[str(size)] for size in sizes], rng, rng.choice(("\n", None))), {"documents": text.encode()}


def read_with_groups(path: Path, documents: bytes) -> dict:
    (path.parent / "lists.txt").write_bytes(documents)
    return lists_of(read_svmlight(path.parent / "lists.txt", group_file=path, omitted="zero", cache=False))


def expect_groups(content: bytes, documents: bytes) -> dict:
    if not content:
        raise Refused("empty")
    return plain.svmlight(documents, sizes=content, omitted="zero")


PACKERS: list[Callable[[bytes], bytes]] = [compress, bz2.compress, lzma.compress]
if plain.zstandard is not None:
    PACKERS.append(plain.zstandard.ZstdCompressor(write_checksum=True).compress)


def packed_input(rng: Random) -> Input:
    """A packed file: whole, of several streams, of damaged text, or of two kinds."""
    text, pack = document_lines(rng, with_qid=True).encode(), rng.choice(PACKERS)
    if rng.random() < 0.003:  # a bomb
        return pack(text) + pack(b"\n" * 10**6) * 300, {"omitted": "zero"}
    size, zeros = rng.randrange(len(text)), bytes(rng.choice((0, 0, 1, 4)))
    other = rng.choice((pack, pack, rng.choice(PACKERS)))
    packed = (pack(mutate(text, rng)), pack(text), pack(text) + zeros, pack(text[:size]) + zeros + other(text[size:]))
    return rng.choice(packed), {"omitted": "zero"}


def class_rows(rng: Random) -> tuple[list[str], list[list[str]]]:
    names = [f"x{i}" for i in range(rng.randrange(1, 5))]
    rows = [[*(some_number(rng) for _ in names), rng.choice("ab")] for _ in range(rng.randrange(1, 8))]
    return names, rows


def csv_input(rng: Random) -> Input:
    names, rows = class_rows(rng)
    if rng.random() < 0.2:
        at = rng.randrange(len(names))
        rows = [[*row[:at], rng.choice(("True", "false", "TRUE")), *row[at + 1 :]] for row in rows]
    quote = rng.choice(("", '"'))
    rows = [[f"{quote}{cell}{quote}" for cell in row] for row in [[*names, "class"], *rows]]
    return laid_out(rows, rng, rng.choice(",,;\t|")), {}


def csv_lists_input(rng: Random) -> Input:
    """A table of lists, its columns in any order; some cells are empty, some columns True and False."""
    columns = {"label": lambda: str(rng.randrange(3)), "qid": str, "x": lambda: some_number(rng)}
    if rng.random() < 0.5:
        columns["docid"] = lambda: some_name(rng, "d")
    for name in ("y", "z é", "w")[: rng.randrange(4)]:
        flags = rng.random() < 0.3
        columns[name] = lambda flags=flags: rng.choice(("True", "false", "TRUE", "")) if flags else some_number(rng)
    if rng.random() < 0.3:
        columns["kind"] = lambda: rng.choice(("a", "B é", "a b", "NA", ""))
    names = rng.sample(list(columns), len(columns))
    rows = [[rng.choice((name, name, name, name.upper(), name.title())) for name in names]]
    for query in dict.fromkeys(some_name(rng, "q") for _ in range(rng.randrange(1, 4))):
        for _ in range(rng.randrange(1, 4)):
            cells = {name: query if name == "qid" else make() for name, make in columns.items()}
            empty = rng.choice(["x", *names]) if rng.random() < 0.1 else None
            rows.append(["" if name == empty else cells[name] for name in names])
    separator = rng.choice(",,;\t|")
    quoted = rng.random() < 0.2
    content = laid_out(
        [[f'"{cell}"' if quoted or separator in cell else cell for cell in row] for row in rows], rng, separator
    )
    return rng.choice(PACKERS)(content) if rng.random() < 0.05 else content, {}


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
        [query, "Q0", docid, str(rank), some_number(rng), "tag"]
        for query in dict.fromkeys(some_name(rng, "q") for _ in range(3))
        for rank, docid in enumerate(dict.fromkeys(some_name(rng, "d") for _ in range(rng.randrange(1, 6))))
    ]
    return laid_out(rows, rng), {}


def qrels_input(rng: Random) -> Input:
    pairs = dict.fromkeys((some_name(rng, "q"), some_name(rng, "d")) for _ in range(rng.randrange(1, 12)))
    return laid_out([[query, "0", docid, str(rng.randrange(-1, 4))] for query, docid in pairs], rng), {}


def beir_input(rng: Random) -> Input:
    pairs = dict.fromkeys((some_name(rng, "q"), some_name(rng, "d")) for _ in range(rng.randrange(1, 12)))
    rows = [[*pair, str(rng.randrange(-1, 4)) + rng.choice(("", ".0"))] for pair in pairs]
    return laid_out([["query-id", "corpus-id", "score"], *rows], rng, rng.choice(("\t", "\t", " "))), {}


def scores_input(rng: Random) -> Input:
    before = ["x"] * rng.randrange(2)
    return laid_out([[*before, some_number(rng)] for _ in range(rng.randrange(1, 9))], rng), {}


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
    if form == "csv":
        separator = rng.choice((",", ",", ";", "\t", "|"))
        if rng.random() < 0.5:
            names = rng.choice((["item", "user", "rating"], ["movieId", "userId", "Rating"]))
            rows = [names, *([item, user, rating] for user, item, rating in rows)]
    return laid_out(rows, rng, separator), {"form": form}


def ratings_of(path: Path, form: str) -> dict:
    found = read_ratings(path, form, scale=RATINGS[form][2])
    users, items = found.user_names.tolist(), found.item_names.tolist()
    rows = zip(found.user.tolist(), found.item.tolist(), found.rating.tolist(), strict=True)
    return {(users[user], items[item]): rating for user, item, rating in rows}


def cache_input(rng: Random) -> Input:
    """A file of the cache; a fifth get the right checksum after the damage."""
    text = document_lines(rng, with_qid=True, odd=0).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lists.txt")
        path.write_bytes(text)
        read_svmlight(path, omitted="zero", cache=folder)
        return next(Path(folder).glob("*.rankdata")).read_bytes(), {"documents": text, "crafted": rng.random() < 0.2}


def map_input(rng: Random) -> Input:
    """A converted file, which is read where it is."""
    text = document_lines(rng, with_qid=True, odd=0).encode()
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
    text = json.dumps(result, indent=2)
    if rng.random() < 0.2:  # a key twice
        line = rng.choice([each for each in text.split("\n") if '":' in each and each[-1] == ","])
        text = text.replace(line, f"{line}\n{line}")
    return text.encode(), {}


def corpus_input(rng: Random) -> Input:
    """Texts of a collection; some have a key twice, or a number or nothing where text belongs."""
    rows = []
    for name in dict.fromkeys(some_name(rng, "d") for _ in range(rng.randrange(1, 6))):
        pairs = [("_id", name), ("title", some_name(rng, "t")), ("text", some_name(rng, "x"))]
        if rng.random() < 0.1:
            pairs[rng.randrange(3)] = (
                rng.choice(("_id", "title", "text", "url")),
                rng.choice((7, None, True, 0.5, [], "x")),
            )
        if rng.random() < 0.1:
            pairs.append(rng.choice(pairs))
        rows.append([f"{{{', '.join(f'{json.dumps(key)}: {json.dumps(value)}' for key, value in pairs)}}}"])
    return laid_out(rows, rng), {}


def read_corpus(path: Path) -> Any:
    from rankstruct.text.collection import _texts  # of an extra

    return dict(_texts(path))


def read_cell(path: Path) -> Any:
    shutil.rmtree(path.parent / "one", ignore_errors=True)
    cell = Cell("one", {"config": "a"}, ())
    with CellFolders(path.parent) as store:
        store.begin(cell)
        shutil.copyfile(path, path.parent / "one" / "result.json")
        store.seal(cell, ["result.json"])  # that of its run, whatever it says
        return store.find(cell)


class Said(ValueError):
    """A command ended with one line and the exit code of an error."""


def command(*arguments: str) -> str:
    """What a command prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = programs.main(arguments)
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
        if rng.random() < 0.2:
            content = with_key_twice(content, rng)
        if rng.random() < 0.005:  # a bomb of aliases
            bomb = [
                b"a0: &a0 [0, 0]",
                *(b"a%d: &a%d [%s]" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 9)),
            ]
            content = b"\n".join([*bomb, content])
        return content, {}

    return make


def with_key_twice(content: bytes, rng: Random) -> bytes:
    """A config that says something again at its end: a block, or a value by its whole name."""
    names = [name for name in plain.config(content) if all(isinstance(part, str) for part in name)]
    name = rng.choice(names)
    again = rng.choice(
        (f"{name[0]}: {{}}", f"{'.'.join(name)}: 3", "".join(f"{part}: {{" for part in name) + "}" * len(name))
    )
    return content.rstrip(b"\n") + f"\n{again}\n".encode()


def expect_config(content: bytes) -> Either:
    plain.config(content)
    return Either(numbers_in(content))


def read_keys(path: Path) -> dict[str, float]:
    found = read_yaml(path)
    given = numbers_in(path.read_bytes())
    return {name: given[name] for name in given if found is not None}


def misspelt_input(command: str, pattern: str, free: str) -> Callable[[Random], Input]:
    """A config in which one key has a letter too much, too few, or two in the wrong order."""
    files = [path for path in sorted((ROOT / "configs").glob(pattern)) if path.name != "exact-diverse.yaml"]

    def make(rng: Random) -> Input:
        text = rng.choice(files).read_text()
        lines = [line for line in text.split("\n") if re.match(r" *[a-z_]{5,}:", line) and not re.search(free, line)]
        line = rng.choice(lines)
        key = line.strip().partition(":")[0]
        at, how = rng.randrange(1, len(key) - 1), rng.randrange(3)
        wrong = (
            key[:at] + key[at + 1 :],
            key[:at] + key[at] + key[at:],
            key[:at] + key[at + 1] + key[at] + key[at + 2 :],
        )[how]
        if wrong != key:
            text = text.replace(line, line.replace(key, wrong, 1), 1)
        return text.encode(), {"command": command, "key": key, "wrong": wrong}

    return make


def read_misspelt(path: Path, command: str, key: str, wrong: str) -> None:
    try:
        (read_fit_config if command == "fit" else partial(read_config, name=command))(path)
    except Said as said:
        if key not in str(said).replace(wrong, ""):
            raise AssertionError(f"{wrong} does not remind of {key}: {said}") from None
        raise


def expect_misspelt(content: bytes, command: str, key: str, wrong: str) -> Any:
    if wrong == key:
        raise Unsure("the same")
    raise Refused(f"{wrong} for {key}")


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


# ----------------------------------------------------------------------------------------------------------------------
# Tables of Arrow

DAY = datetime.datetime(2024, 2, 29)


class ArrowType(NamedTuple):
    """A type of columns: how its values are made, and what they are as a number and as a name; None where they are none."""

    kind: pa.DataType
    value: Callable[[Random], Any]
    number: Callable[[Any], float] | None = None
    name: Callable[[Any], str] | None = None


def whole_name(value: Any) -> str:
    if value % 1 != 0 or (isinstance(value, float) and abs(value) > 2**53):
        raise Refused("no whole number")
    return str(int(value))


def cast(values: Any, kind: str) -> np.ndarray:
    """Numbers in another precision, in which some may be infinite."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float64).astype(kind)


def some_float(rng: Random) -> float:
    edges = (math.nan, math.inf, -0.0, 1e39, 2.0**53, 2.0**54, 0.1)
    return rng.choices((float(rng.randrange(4)), rng.gauss(0, 1), rng.choice(edges)), (9, 9, 1))[0]


def moment(unit: str, zone: str = "") -> ArrowType:
    step = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[unit]
    size = datetime.timedelta(**{step: 1})
    return ArrowType(
        pa.timestamp(unit, "UTC" if zone else None),
        lambda rng: (DAY + rng.randrange(3) * size).replace(tzinfo=datetime.UTC if zone else None),
        None,
        lambda value: plain.moment(value.replace(tzinfo=None)),
    )


def arrow_types() -> dict[str, ArrowType]:
    found = {}
    for bits in (8, 16, 32, 64):
        for sign in ("", "u"):
            edges = [2 ** (bits - 1) - 1, 1] + ([2**bits - 1] if sign else [-(2 ** (bits - 1)), -1])
            value = lambda rng, edges=edges: rng.choice((rng.randrange(4), rng.randrange(4), rng.choice(edges)))  # noqa: E731
            found[f"{sign}int{bits}"] = ArrowType(getattr(pa, f"{sign}int{bits}")(), value, float, str)
    for kind in ("float16", "float32", "float64"):
        value = lambda rng, kind=kind: cast(some_float(rng), kind)[()]  # noqa: E731
        found[kind] = ArrowType(getattr(pa, kind)(), value, float, lambda value: whole_name(float(value)))
    cents = lambda rng: rng.choice((Decimal(rng.randrange(-100, 300)) / 100, Decimal(rng.randrange(3))))  # noqa: E731
    for kind in ("decimal32", "decimal64", "decimal128", "decimal256"):
        found[kind] = ArrowType(getattr(pa, kind)(8, 2), cents, float)
    found["bool"] = ArrowType(pa.bool_(), lambda rng: rng.random() < 0.5, float, str)
    word = lambda rng: rng.choice(("1", "2.0", "q é", "", "a b", "1e3", "-1", "nan"))  # noqa: E731
    for kind in ("string", "large_string", "string_view"):
        found[kind] = ArrowType(getattr(pa, kind)(), word, None, str)
    coded = lambda rng: rng.choice((b"a", "q é".encode(), b"\xff", b""))  # noqa: E731
    for kind in ("binary", "large_binary", "binary_view"):
        found[kind] = ArrowType(getattr(pa, kind)(), coded, None, plain.utf8)
    found["fixed"] = ArrowType(
        pa.binary(2), lambda rng: rng.choice((b"ab", "é".encode(), b"\xff\xfe")), None, plain.utf8
    )
    found |= {f"timestamp {unit}": moment(unit) for unit in ("ms", "us")} | {"timestamp UTC": moment("ms", "Z")}
    date = lambda rng: (DAY + datetime.timedelta(rng.randrange(3))).date()  # noqa: E731
    found |= {kind: ArrowType(getattr(pa, kind)(), date, None, str) for kind in ("date32", "date64")}
    found["time"] = ArrowType(pa.time32("ms"), lambda rng: datetime.time(rng.randrange(3)))
    found["duration"] = ArrowType(pa.duration("s"), lambda rng: datetime.timedelta(rng.randrange(3)))
    found["null"] = ArrowType(pa.null(), lambda rng: None, float)
    found["struct"] = ArrowType(pa.struct([("a", pa.int8())]), lambda rng: {"a": rng.randrange(3)})
    found["map"] = ArrowType(pa.map_(pa.string(), pa.int8()), lambda rng: [("a", 1)])
    return found


ARROW = arrow_types()
LISTS = {
    "list": pa.list_,
    "large list": pa.large_list,
    "list view": pa.list_view,
    "fixed list": partial(pa.list_, list_size=2),
}


def some_column(rng: Random, size: int, *, names: bool = False, usual: bool = False) -> tuple[pa.Array, Any, Any]:
    """A column of a type, and what it is as numbers and as names: lists, or `Refused` where there are none."""
    fitting = [name for name, each in ARROW.items() if not usual or (each.name if names else each.number)]
    kind = ARROW[rng.choice(fitting)]
    distinct = [kind.value(rng) for _ in range(rng.randrange(1, size + 1))]
    values = [distinct[i * len(distinct) // size] if names else kind.value(rng) for i in range(size)]
    if rng.random() < 0.1 + 0.2 * (not names):
        values = [None if rng.random() < 0.2 else value for value in values]
    array, way = pa.array(values, kind.kind), rng.random()
    with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):
        array = array.dictionary_encode() if way < 0.1 and not pa.types.is_duration(array.type) else array
    return array, as_each(values, kind.number), as_each(values, kind.name)


def as_feature(array: pa.Array, numbers: Any, names: Any) -> tuple[pa.Array, Any]:
    """A column, and what it is as a feature: numbers, or the names of categories."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        if "string" not in str(kind.value_type):
            return array, Unsure("which dictionaries a file keeps")
        kind = kind.value_type
    return array, names if str(kind).startswith(("string", "large_string", "binary", "large_binary")) else numbers


def as_each(values: list, convert: Callable[[Any], Any] | None) -> Any:
    try:
        if convert is None:
            raise Refused("no such values")
        return [None if value is None else convert(value) for value in values]
    except Refused as refused:
        return refused


def arrow_input(rng: Random) -> Input:
    """A table with columns of any type in any role, and what a plain reading makes of it."""
    size = rng.randrange(1, 9)
    labels = rng.choice(("grades", "grades", "real"))
    columns: list[tuple[str, Any, Any]] = []
    usual = rng.random() < 0.6
    if usual:
        values = [rng.randrange(3) for _ in range(size)]
        kept = rng.choice((values, list(map(float, values)), list(map(str, values)), [f"{x}.0" for x in values]))
        columns.append(("label", pa.array(kept), values))
    else:
        array, numbers, names = some_column(rng, size)
        if "string" in str(array.type) and isinstance(names, list):
            numbers = as_each(names, plain.number)
        columns.append(("label", array, numbers))
    columns.append(("qid", *some_column(rng, size, names=True, usual=usual)[::2]))
    if rng.random() < 0.4:
        columns.append(("docid", *some_column(rng, size)[::2]))
    if rng.random() < 0.15:
        columns.append(("vector", *vectors(rng, size)))
    else:
        columns += [
            (f"x{at}", *as_feature(*some_column(rng, size, usual=usual)))
            for at in range(rng.choices((0, 1, 2, 3), (1, 9, 9, 9))[0])
        ]
    rng.shuffle(columns)
    if rng.random() < 0.1:
        at = rng.randrange(len(columns))
        again = rng.choice((columns[at][0], columns[at][0].upper(), "__index_level_0__", "", "Label", "QID"))
        columns.append((again, *as_feature(*some_column(rng, size))))
    if rng.random() < 0.1:
        name, *rest = columns.pop(rng.randrange(len(columns)))
        columns.append((name.upper(), *rest))  # type: ignore[arg-type]
    table = pa.table([array for _, array, _ in columns], [name for name, _, _ in columns])
    content = arrow_bytes(table, rng)
    return content, {"labels": labels, "columns": [(name, found) for name, _, found in columns], "whole": content}


def vectors(rng: Random, size: int) -> tuple[pa.Array, Any]:
    """A column of lists of numbers, now and then of several lengths, or null."""
    name, odd = rng.choice(list(LISTS)), rng.random() < 0.3
    width = 2 if name == "fixed list" else rng.randrange(1, 4)
    inner = ARROW[
        rng.choice(("int8", "float32", "float64", "bool", "decimal128", "string") if odd else ("float32", "float64"))
    ]
    rows: list = [[inner.value(rng) for _ in range(width)] for _ in range(size)]
    if odd and rng.random() < 0.5:
        at = rng.randrange(size)
        rows[at] = None if name == "fixed list" else rng.choice((None, [], rows[at] * 2, [None, *rows[at][1:]]))
    found: Any = Refused("lists")
    if None not in rows and len({len(row) for row in rows}) == 1 and rows[0] and inner.number:
        found = [as_each(row, inner.number) for row in rows]
    return pa.array(rows, LISTS[name](inner.kind)), found


def arrow_bytes(table: pa.Table, rng: Random) -> bytes:
    """A file of any form that takes the types."""
    sink = pa.BufferOutputStream()
    way = rng.randrange(3)
    few = rng.choice((1, 2, 100))
    if way == 0:
        try:
            pa.parquet.write_table(table, sink, row_group_size=few, compression=rng.choice(("snappy", "zstd", "none")))
            return sink.getvalue().to_pybytes()
        except (pa.ArrowException, NotImplementedError):
            sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, "lz4", "zstd")))
    with (pa.ipc.new_file if way == 1 else pa.ipc.new_stream)(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=few)
    return sink.getvalue().to_pybytes()


def read_table(path: Path, labels: str, columns: object, whole: object) -> dict:
    return lists_of(read_lists(path, labels=labels, cache=False))


def expect_table(content: bytes, labels: str, columns: list[tuple[str, Any]], whole: bytes) -> dict:
    if content != whole:
        raise Unsure("what a damaged table holds")
    names = [name for name, _ in columns]
    label, qid, docid = roles = [plain.column(names, name) for name in ("label", "qid", "docid")]
    if label is None or qid is None:
        raise Refused("no label, or no qid")
    plain.check_names(names)
    for name, found in columns:
        if isinstance(found, Unsure):
            raise found
        if isinstance(found, Refused):
            raise Refused(f"{name}: {found}")
    values = [found for _, found in columns]
    given = [found for at, found in enumerate(values) if at not in roles]
    if any(found is None for at in (qid, docid) if at is not None for found in values[at]):
        raise Refused("a name that is missing")
    rows = [list(row) for row in zip(*given, strict=True)] if given else []
    if len(given) == 1 and isinstance(given[0][0], list):
        rows = [*given[0]]
    elif any(isinstance(found[0], list) for found in given):
        raise Refused("lists among other features")
    return plain.lists(values[label], values[qid], None if docid is None else values[docid], rows, labels)


# ----------------------------------------------------------------------------------------------------------------------
# Arrays


def of_objects(values: list) -> np.ndarray:
    found = np.empty(len(values), object)
    found[:] = values
    return found


#: How numbers are kept.
ARRAYS: dict[str, Callable[[list], Any]] = {
    "list": list,
    "tuple": tuple,
    "fractions": lambda each: of_objects([Fraction(x) for x in each]),
    "decimals": lambda each: of_objects(
        [Decimal(x.numerator) / Decimal(x.denominator) if isinstance(x, Fraction) else Decimal(x) for x in each]
    ),
    "objects": of_objects,
    "objects backwards": lambda each: of_objects(each[::-1])[::-1],
    "floats": lambda each: np.array(each, np.float64),
    "backwards": lambda each: np.array(each[::-1], np.float64)[::-1],
    "every third": lambda each: np.repeat(np.array(each, np.float64), 3)[::3],
    "other byte order": lambda each: np.array(each, ">f8"),
    "single, other byte order": lambda each: cast(each, ">f4"),
    "half": lambda each: cast(each, "f2"),
    "extended": lambda each: np.array(
        [np.longdouble(int(x)) if x == int(x) else np.longdouble(float(x)) for x in each]
    ),
    "masked": lambda each: np.ma.masked_array(np.array(each, np.float64), False),
    "tensor": lambda each: torch.tensor([float(x) for x in each], dtype=torch.float64),
    "bfloat16": lambda each: torch.tensor([float(x) for x in each], dtype=torch.bfloat16),
    "pandas": lambda each: pd.Series([float(x) for x in each]),
    "Float64": lambda each: pd.Series([float(x) for x in each], dtype="Float64"),
    "int64": lambda each: np.array(each, np.int64),
    "int64, other byte order": lambda each: np.array(each, ">i8"),
    "int64, backwards": lambda each: np.array(each[::-1], np.int64)[::-1],
    "uint64": lambda each: np.array(each, np.uint64),
    "tensor of integers": lambda each: torch.tensor(each, dtype=torch.int64),
    "Int64": lambda each: pd.Series(each, dtype="Int64"),
    "Arrow": lambda each: pa.array(each, pa.int64()),
}
OF_INTEGERS = list(ARRAYS)[-7:]
#: What is no number, and is refused.
WRONG: dict[str, Callable[[list], Any]] = {
    "None": lambda each: of_objects([None, *each[1:]]),
    "NaN": lambda each: np.array([math.nan, *each[1:]], np.float64),
    "NaN among objects": lambda each: of_objects([*each[:-1], math.nan]),
    "masked": lambda each: np.ma.masked_array(np.array(each, np.float64), [True, *[False] * (len(each) - 1)]),
    "strings": lambda each: np.array([str(x) for x in each]),
    "complex": lambda each: np.array([complex(x) for x in each]),
    "dates": lambda each: np.array(["2024-01-01"] * len(each), "M8[D]"),
    "missing": lambda each: pd.Series([pd.NA, *[1] * (len(each) - 1)], dtype="Int64"),
    "bytes": lambda each: of_objects([b"1", *each[1:]]),
}


def array_input(rng: Random) -> Input:
    """Scores and labels of some lists, and how they are kept; integers are often neighbours above 2^53."""
    size = rng.randrange(1, 7)
    base = rng.choice((0, 0, 2**24, 2**53, 2**62, -(2**53), -(2**62)))
    kept = rng.choice(list(ARRAYS))
    whole = kept in OF_INTEGERS or rng.random() < 0.4
    scores = [
        base + rng.randrange(-2, 4) if whole else rng.choice((rng.gauss(0, 1), 0.1, 0.3, 0.1 + 0.2))
        for _ in range(size)
    ]
    if kept == "uint64":
        scores = [abs(x) + rng.choice((0, 2**63)) * (base > 2**60) for x in scores]
    if kept in ("fractions", "objects") and rng.random() < 0.5:
        scores = [Fraction(int(x), 3) for x in scores]
    labels = [rng.randrange(3) for _ in scores]
    given = {"scores": [str(x) for x in scores], "labels": labels}
    options = {"scores": scores, "labels": labels, "kept": kept, "as_labels": rng.choice(list(ARRAYS))}
    options |= {"qid": [rng.randrange(3) for _ in scores], "layout": rng.choice(("one", "qid", "padded"))}
    options["wrong"] = f"{rng.choice(('scores', 'labels'))} {rng.choice(list(WRONG))}" if rng.random() < 0.15 else ""
    return json.dumps(given).encode(), options


def exactly(values: Any) -> list[Fraction]:
    """What an array holds, one after another."""
    values = (
        values.tolist()
        if isinstance(values, torch.Tensor)
        else values.to_pylist()
        if isinstance(values, pa.Array)
        else values
    )
    return [
        Fraction(*x.as_integer_ratio())
        if isinstance(x, np.longdouble)
        else Fraction(x.item() if isinstance(x, np.generic) else x)
        for x in values
    ]


class Near(float):
    """A number that equals those within rounding."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(float(self) - float(other)) < 1e-12

    __hash__ = float.__hash__


def arrays_of(scores: list, labels: list, kept: str, as_labels: str, wrong: str) -> tuple[Any, Any]:
    what, _, how = wrong.partition(" ")
    return (
        (WRONG[how] if what == "scores" else ARRAYS[kept])(scores),
        (WRONG[how] if what == "labels" else ARRAYS[as_labels])(labels),
    )


def read_arrays(
    path: Path, scores: list, labels: list, kept: str, as_labels: str, qid: list, layout: str, wrong: str
) -> list:
    given, judged = arrays_of(scores, labels, kept, as_labels, wrong)
    options: dict[str, Any] = {"qid": qid} if layout == "qid" else {}
    if layout == "padded" and isinstance(given, np.ndarray) and isinstance(judged, np.ndarray):
        given, judged = given[None], judged[None]
    found = rs.evaluate(given, judged, ["AUC", "AP"], **options)
    return [Near(x) for measure in ("AUC", "AP") for x in found[measure].ravel().tolist()]


def expect_arrays(
    content: bytes, scores: list, labels: list, kept: str, as_labels: str, qid: list, layout: str, wrong: str
) -> list:
    if wrong:
        raise Refused(wrong)
    given, judged = arrays_of(scores, labels, kept, as_labels, wrong)
    try:
        exact, grades = exactly(given), exactly(judged)
    except OverflowError:
        raise Unsure("numbers that are too large for how they are kept") from None
    parts = (
        {name: [at for at, each in enumerate(qid) if each == name] for name in qid}
        if layout == "qid"
        else {0: range(len(exact))}
    )
    return [
        Near(measure([exact[at] for at in part], [grades[at] for at in part]))
        for measure in (plain.exact_auc, plain.exact_ap)
        for part in parts.values()
    ]


_VALUE = (ValueError,)
#: Commands, their configs, and lines whose keys are names of one's own.
MISSPELT = (
    ("fit", "[l-s]*.yaml", r"^$"),
    ("fit-exact", "exact-*.yaml", r"^$"),
    ("experiment", "experiment-*.yaml", r"^ "),
)
KINDS = {
    "svmlight": Kind(svmlight_input, read_documents, expect_documents, 4),
    "groups": Kind(group_input, read_with_groups, expect_groups, 2),
    "packed": Kind(packed_input, read_documents, expect_documents, 2, "input.txt.gz", damaged=0.4),
    "csv lists": Kind(
        csv_lists_input,
        lambda path: lists_of(read_lists(path, cache=False)),
        plain.csv_lists,
        3,
        "input.csv",
        damaged=0.5,
    ),
    "arrow": Kind(arrow_input, read_table, expect_table, 4, "input.parquet", damaged=0.1),
    "arrays": Kind(array_input, read_arrays, expect_arrays, 3, errors=(ValueError, TypeError), damaged=0),
    "csv": Kind(csv_input, read_classes, plain.csv_classes, 2, "input.csv"),
    "arff": Kind(arff_input, read_classes, plain.arff_classes, 2, "input.arff"),
    "run": Kind(run_input, read_run, lambda content: plain.table(content, 6, 4, whole=False), 2),
    "qrels": Kind(qrels_input, read_qrels, lambda content: plain.table(content, 4, 3, whole=True), 2),
    "beir": Kind(beir_input, read_qrels, lambda content: plain.table(content, 4, 3, whole=True), 2),
    "scores": Kind(scores_input, lambda path: read_scores(path).tolist(), plain.scores),
    "ratings": Kind(ratings_input, ratings_of, lambda content, form: plain.ratings(content, *RATINGS[form]), 3),
    "cache": Kind(cache_input, read_through_cache, expect_cached, 1),
    "map": Kind(
        map_input,
        lambda path, documents: lists_of(read_lists(path)),
        lambda content, documents: Either(plain.svmlight(documents, omitted="zero")),
        1,
        "lists.rankdata",
    ),
    "cell": Kind(cell_input, read_cell, plain.json_value, 1, "given.json", _VALUE),
    "corpus": Kind(corpus_input, read_corpus, plain.corpus, 1, "corpus.jsonl", damaged=0.5),
    "keys": Kind(config_input("*.yaml"), read_keys, expect_config, 1, "c.yaml", _VALUE),
    "measure": Kind(measure_input, read_measure, expect_measure, 1, errors=_VALUE),
    "scorer": Kind(scorer_input, read_weights, expect_weights, 1, "scorer.pt", _VALUE),
    "fit config": Kind(config_input("[l-s]*.yaml"), read_fit_config, expect_config, 0.1, "c.yaml", _VALUE),
    "exact config": Kind(config_input("exact-*.yaml"), read_exact_config, expect_config, 0.3, "c.yaml", _VALUE),
    "plan config": Kind(
        config_input("experiment-*.yaml"),
        read_plan_config,
        expect_config,
        0.2,
        "c.yaml",
        _VALUE,
    ),
    **{
        f"misspelt {name} key": Kind(
            misspelt_input(name, pattern, free), read_misspelt, expect_misspelt, 0.05, "c.yaml", _VALUE, 0
        )
        for name, pattern, free in MISSPELT
    },
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
    return mutate(content, rng) if rng.random() < KINDS[kind].damaged else content, options


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
        both = isinstance(found, dict) and isinstance(expected, dict)
        differs = [key for key in expected if not same(found.get(key), expected[key])] if both else []
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
    """End this process after this many seconds of CPU time, or thirty times as many of any time; 0 for never."""
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
    parser = CommandParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time (default: never)")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), default=list(KINDS), help="(default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--only", type=int, help="the number of one input, judged in this process")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="inputs at once")
    parser.add_argument("--show", type=int, default=3, help="findings of a sort that are printed")
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
