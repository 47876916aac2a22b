"""`rankstruct predict --run FOLDER --data.predict_path SHARDS --output FOLDER`: scores of shards, as shards.

Each file has one of its own name in the output folder, with its rows in their order: the columns of queries and documents,
and `score`; with a model that was calibrated also `probability`, and with one that has a cut-off `shown`, whether it is
shown. Files are read some rows at a time and written atomically. A file says which model, and which version of the file it
was read from, so that a command that was killed goes on with the files that are not there.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rankstruct.calibration import Calibration
from rankstruct.columns import find_column, usual_columns
from rankstruct.commands import rank
from rankstruct.commands._arguments import CommandParser
from rankstruct.commands.cells import CellFolders
from rankstruct.configs import read_config
from rankstruct.cut_off import CutOff
from rankstruct.data import DataError
from rankstruct.data.shards import Shards, url_of
from rankstruct.data.source import digest_of
from rankstruct.files import newest_run, whole_file
from rankstruct.messages import shortened
from rankstruct.models import load_scorer
from rankstruct.models.saving import scorer_file
from rankstruct.table_scorer import TableScorer

_log = logging.getLogger(__name__)
_KEY = b"rankstruct.scores"


class _TableModel(NamedTuple):
    """A scorer of tables, and the last steps of its model, if there are any."""

    scorer: TableScorer
    calibration: Calibration | None
    cut_off: CutOff | None

    @property
    def by_list(self) -> bool:
        """Whether tables must have whole lists."""
        return self.scorer.by_list or self.cut_off is not None

    def columns(self, table: Any, scores: np.ndarray) -> dict[str, np.ndarray]:
        """What is written of the rows of a table with these scores, `[rows]` each."""
        found = {self.scorer.output: scores}
        if self.calibration is not None:
            found["probability"] = self.calibration.predict(scores).numpy()
        if self.cut_off is not None:
            ids = table[self.scorer.qid].to_numpy()
            offsets = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1], [True]]))
            found["shown"] = self.cut_off.predict(scores, offsets=offsets).numpy()
        return found


def score_shards(model: _TableModel, shards: Shards, output: str | Path, digest: str) -> tuple[int, int]:
    """Write the scores of shards.

    Args:
        model: of their tables; its column of lists must be known if it is needed.
        shards: the files.
        output: the folder.
        digest: of the model.

    Returns:
        The number of files that were scored, and of those that were there before.

    Raises:
        DataError: the output folder has files of another model or another input, rows cannot be scored, or a file does not have
            the whole lists that the scores depend on.
    """
    files = [Path(output) / place for place in shards.places]
    marks = [hashlib.sha256(f"{shards.states[name]} {digest}".encode()).hexdigest().encode() for name in shards.names]
    done = [_is_done(*each) for each in zip(files, marks, strict=True)]
    if model.by_list:
        _check_lists(str(model.scorer.qid), shards)
    for number, (file, mark) in enumerate(zip(files, marks, strict=True)):
        if not done[number]:
            _score_file(model, shards, number, file, mark)
    return done.count(False), done.count(True)


def _check_lists(qid: str, shards: Shards) -> None:
    """Raise DataError unless the rows of each query are together, and in one file."""
    hashes, rows, before, last = [], [], 0, None  # hashes take less memory than names
    for batch in shards.batches([qid]):
        ids = batch[0].to_numpy(zero_copy_only=False)
        begins = np.append(before in shards.starts or ids[0] != last, ids[1:] != ids[:-1])
        rows.append(np.flatnonzero(begins) + before)
        hashes.append(np.array([hash(each) for each in ids[begins].tolist()], np.int64))
        before, last = before + len(ids), ids[-1]
    found, places = np.concatenate(hashes), np.concatenate(rows)
    order = np.argsort(found, kind="stable")
    for at in np.flatnonzero(np.diff(found[order]) == 0).tolist():
        one, other = places[order[at : at + 2]].tolist()
        names = [next(shards.batches([qid], row, row + 1))[0][0].as_py() for row in (one, other)]
        if names[0] == names[1]:  # else only the hashes are equal
            raise DataError(
                f"{shards.place(other)}: expected the rows of each query together, since scores depend on the whole list, but "
                f"query {shortened(names[0])} also has {shards.place(one)}; `rankstruct convert --shards` puts them together"
            )


def _is_done(file: Path, mark: bytes) -> bool:
    """Whether a file has the scores; raises DataError if it has others."""
    import pyarrow.parquet

    if not file.exists():
        return False
    found = None
    with suppress(OSError, ValueError):  # not a Parquet file
        found = (pyarrow.parquet.read_schema(file).metadata or {}).get(_KEY)
    if found != mark:
        raise DataError(
            f"{file}: expected no file, or the scores of this model and of the same input, got another; use another --output, or "
            "delete it"
        )
    return True


def _score_file(model: _TableModel, shards: Shards, number: int, file: Path, mark: bytes) -> None:
    """Write the scores of one file, and what the last steps of the model make of them."""
    import pyarrow as pa
    import pyarrow.parquet

    scorer = model.scorer
    kept = [name for name in shards.schema.names if name == scorer.qid or usual_columns([name], "docid")]
    fields = [*(shards.schema.field(name) for name in kept), pa.field(scorer.output, pa.float64())]
    fields += [pa.field("probability", pa.float64())] if model.calibration is not None else []
    fields += [pa.field("shown", pa.bool_())] if model.cut_off is not None else []
    schema, row = pa.schema(fields, metadata={_KEY: mark}), shards.starts[number]
    with whole_file(file, "wb") as sink, pa.parquet.ParquetWriter(sink, schema) as writer:
        for table in _tables(model, shards, number, [*dict.fromkeys([*kept, *scorer.features])]):
            try:
                scores = scorer.scores(table)
            except ValueError as error:
                raise DataError(f"{shards.told(shards.names[number])}: {error}") from error
            wrong = np.flatnonzero(~np.isfinite(scores))
            if wrong.size:
                raise DataError(
                    f"{shards.place(row + int(wrong[0]))}: expected features that the model can score, got a score of "
                    f"{scores[wrong[0]]}; correct or remove such rows"
                )
            columns = [*table.select(kept).columns, *map(pa.array, model.columns(table, scores).values())]
            writer.write_table(pa.table(columns, names=schema.names).cast(schema))
            row += len(table)


def _tables(model: _TableModel, shards: Shards, number: int, names: Sequence[str]) -> Iterator[Any]:
    """The rows of a file in consecutive tables, of whole lists if the scores depend on them."""
    import pyarrow as pa

    batches = shards.batches(names, *shards.starts[number : number + 2])
    if not model.by_list:
        yield from (pa.table(batch) for batch in batches)
        return
    rest: list[Any] = []
    for batch in batches:
        ids = batch[model.scorer.qid].to_numpy(zero_copy_only=False)
        new = np.flatnonzero(ids[1:] != ids[:-1]) + 1  # where another list begins
        if rest and rest[-1][model.scorer.qid][-1].as_py() != ids[0]:
            new = np.insert(new, 0, 0)
        if len(new):
            yield pa.Table.from_batches([*rest, batch.slice(0, int(new[-1]))])
            rest = []
        rest.append(batch.slice(int(new[-1]) if len(new) else 0))
    yield pa.Table.from_batches(rest)


def _known(folder: Path) -> dict[str, Any]:
    """What a folder of `rank`, or of a run, says of its data."""
    if rank.has_scorer(folder):
        CellFolders(folder).check_outputs(".")
        return rank.result_of(folder)
    config = newest_run(folder) / "config.yaml"
    content = read_config(config) if config.is_file() else None
    data = content.get("data") if isinstance(content, dict) else None
    return {"qid": data.get("qid")} if isinstance(data, dict) else {}


def predict(folder: Path | None, args: Sequence[str]) -> None:
    """Score shards with the model of a folder, and say how many.

    Raises:
        ValueError: no `--run`, the shards lack columns, or as `score_shards`.
    """
    parser = CommandParser(prog=f"rankstruct predict --run {folder or 'FOLDER'}")
    parser.add_argument(
        "--data.predict_path", dest="path", metavar="SHARDS", required=True, help="Parquet files to score"
    )
    parser.add_argument("--output", metavar="FOLDER", required=True, help="folder for as many files of scores")
    parser.add_argument(
        "--data.qid", dest="qid", metavar="COLUMN", help="column of queries (default: found by its name)"
    )
    given = parser.parse_args(args)
    if folder is None:
        raise ValueError(
            "--output writes the scores of shards by the model of --run FOLDER; add --run, or remove --output"
        )
    if url_of(given.output) is not None:
        raise ValueError(f"--output must be a local folder, got {given.output}")
    known = _known(folder)
    scorer: Any = load_scorer(folder)
    shards = Shards(given.path)
    names = shards.schema.names
    given.qid = known.get("qid") if given.qid is None else given.qid
    qid = find_column(names, "qid", given.qid)
    if given.qid is not None and qid is None:
        raise DataError(f"{given.path}: expected a column {given.qid!r}, got {shortened(', '.join(names), 200)}")
    columns = getattr(getattr(scorer, "preparation", None), "columns", None)
    features = known.get("feature_names") or getattr(scorer, "feature_names", None) or (columns and columns.names)
    if features is None:
        roles = {name for role in ("label", "qid", "docid") for name in usual_columns(names, role)} | {qid}
        features = [name for name in names if name not in roles]
        _log.warning(
            "%s: the model has no names of features; in order they are %s", given.path, ", ".join(features)[:200]
        )
    table = scorer._table_scorer(qid, features, "score")
    model = _TableModel(table, getattr(scorer, "calibration", None), rank.fitted_cut_off(known))
    try:
        table.list_column(names)
    except ValueError as error:
        raise DataError(f"{given.path}: {error}") from error
    if model.cut_off is not None and qid is None:
        raise DataError(
            f"{given.path}: expected a column of queries, since the model has a cut-off; name it by --data.qid"
        )
    digest = " ".join([digest_of(str(scorer_file(folder))), *map(repr, filter(None, model[1:]))])
    scored, there = score_shards(model, shards, given.output, digest)
    before = f"; {there} were there before" if there else ""
    print(f"scores of {shards.starts[-1]} documents in {scored + there} files: {given.output}{before}")
