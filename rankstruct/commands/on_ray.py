"""Training by workers that Ray starts, on whatever machines it has: `rankstruct fit --on ray`. Importing this needs Ray.

A worker is a process of `rankstruct fit` with another strategy of Lightning. The checkpoint that Ray's restarts go on from is the
run's own `last.ckpt`, so there is one, and `rankstruct fit --run` goes on from it too.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from ray.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer
from ray.train.torch import TorchTrainer, get_device
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError

from rankstruct._version import __version__
from rankstruct.commands.cells import locked
from rankstruct.commands.fit import RankingCLI, expand_run, run_cli
from rankstruct.processes import find_team
from rankstruct.progress import looking

__all__: list[str] = []

_PROGRESS, _STORE = ".progress", "ray"
_FRUITLESS = 3  # attempts in a row
_MINUTES = 20  # for machines to come, or come back: Ray looks once a minute
_PATIENCE = 30  # seconds for the processes of a lost machine to end


def train(args: Sequence[str], folder: Path, place: Namespace) -> None:
    """Train a run on the cluster that is connected, and print its report.

    Args:
        args: the command line, such as `["fit", "--config", FILE]`.
        folder: of the run.
        place: `workers`, the number of processes; `gpu`, whether each has a GPU; `address`, for the advice on how to resume.

    Raises:
        ValueError: a worker's, workers died again and again without an epoch in between, or another command trains the run.
    """
    os.environ["RAY_TRAIN_ENABLE_PRINT_PATCH"] = "0"  # of all processes: it prints everything once more
    work: dict[str, Any] = {"args": list(args), "folder": str(folder), "directory": os.getcwd(), "version": __version__}
    work["saved"] = _saved(folder)
    with locked(folder / _STORE):  # by the command; a worker locks the run
        try:
            trainer = TorchTrainer(
                _work,
                train_loop_config=work,
                scaling_config=ScalingConfig(num_workers=place.workers, use_gpu=place.gpu),
                run_config=RunConfig(
                    name=_STORE,
                    storage_path=str(folder),
                    failure_config=FailureConfig(max_failures=-1, controller_failure_limit=_MINUTES),
                    callbacks=[_Failures(folder)],
                ),
            )
            with _shown(folder / _PROGRESS):
                printed = trainer.fit().return_value
            print(printed, end="")
        except SystemExit as end:  # Ray's, on Ctrl-C
            raise KeyboardInterrupt(f"stopped{_advice(folder, place)}") from end
        except TrainingFailedError as error:
            raise ValueError(f"{_told(error)}{_advice(folder, place)}") from error
        finally:
            shutil.rmtree(folder / _STORE, ignore_errors=True)


@contextmanager
def _shown(progress: Path) -> Iterator[None]:
    """Show on stderr what is appended to a file meanwhile; Ray would show its own messages too."""
    progress.unlink(missing_ok=True)
    progress.touch()
    try:
        with (
            progress.open(encoding="utf-8", errors="replace") as file,
            looking(lambda: print(file.read(), end="", file=sys.stderr, flush=True)),
        ):
            yield
    finally:
        progress.unlink(missing_ok=True)


def _advice(folder: Path, place: Namespace) -> str:
    where = ["--on", "ray", "--workers", str(place.workers), *(["--gpu"] if place.gpu else [])]
    where += ["--address", place.address] if place.address else []
    resume = shlex.join(["rankstruct", "fit", "--run", str(folder), *where])
    return f"; to resume: {resume}" if _checkpoint(folder).is_file() else ""


def _checkpoint(folder: Path) -> Path:
    return folder / "checkpoints" / "last.ckpt"


def _saved(folder: Path) -> int:
    """When the last checkpoint was saved, 0 if there is none."""
    last = _checkpoint(folder)
    return last.stat().st_mtime_ns if last.is_file() else 0


class _Failures(UserCallback):
    """End a run at an error of its config or data, or after several failures without a new checkpoint in between."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._seen, self._fruitless = folder, 0, 0

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Raise ValueError if Ray should not start the workers again."""
        errors = [getattr(error, "_base_exc", error) for error in worker_exceptions.values()]
        if all(isinstance(error, ValueError) for error in errors):
            raise ValueError(str(errors[0]))
        saved = _saved(self._folder)
        self._fruitless, self._seen = (self._fruitless + 1 if saved == self._seen else 1), saved
        if self._fruitless >= _FRUITLESS:
            raise ValueError(f"workers failed {_FRUITLESS} times without completing an epoch: {_line(errors[0])}")
        with (self._folder / _PROGRESS).open("a", encoding="utf-8") as progress:
            told = "Ray starts all of them again, from the last checkpoint, as soon as there is room"
            progress.write(f"a worker failed; {told} ({_line(errors[0])})\n")


def _told(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, ControllerError):
        found = error.controller_failure
        return str(found) if isinstance(found, ValueError) else _line(found)
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    return next((_line(each) for each in failures.values()), str(error))


def _line(error: BaseException) -> str:
    found = getattr(error, "_base_exc", error)
    return f"{type(found).__name__}: {found}".partition("\n")[0]


def _work(work: dict[str, Any]) -> str:
    """Train in one worker, from the last checkpoint if there is one; returns what the first one has to report."""
    if work["version"] != __version__:
        raise ValueError(
            f"{socket.gethostname()} has rankstruct {__version__}, expected {work['version']}, that of the command; install it"
        )
    folder, team = Path(work["folder"]), find_team()
    try:
        os.chdir(work["directory"])
    except OSError as error:
        raise ValueError(f"{socket.gethostname()}: {error}; all machines need the same folders: share them") from error
    if not (folder / _PROGRESS).is_file():  # else each machine would fill a folder of its own
        raise ValueError(
            f"{socket.gethostname()}: {folder} is not that of the command; all machines need the same folders: share them"
        )
    if team.rank == 0:
        _wait_for(folder)
    resumes = team.hand_out(_saved(folder) != work["saved"])  # as the first one sees it
    # The run's own config: the files of the command may have been edited since.
    args = expand_run(["fit", "--run", str(folder)])[0] if resumes else work["args"]
    if team.rank != 0:
        run_cli(_Worker, args, folder)
        return ""
    with (
        (folder / _PROGRESS).open("a", buffering=1, encoding="utf-8") as progress,
        redirect_stderr(progress),
        redirect_stdout(io.StringIO()) as printed,
    ):
        run_cli(_Worker, args, folder)
    return printed.getvalue()


def _wait_for(folder: Path) -> None:
    """Wait a while for a process of an earlier attempt, whose machine was lost, to end."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with suppress(ValueError), locked(folder):
            return
        time.sleep(0.2)


class _Worker(RankingCLI):
    """The process of one worker."""

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> pl.Trainer:
        unused = config["strategy"] == "ddp_find_unused_parameters_true"
        config |= {"strategy": RayDDPStrategy(find_unused_parameters=unused), "devices": 1, "num_nodes": 1}
        config |= {"accelerator": "cpu" if get_device().type == "cpu" else "gpu"}
        config["plugins"] = [*config["plugins"], RayLightningEnvironment()]
        return prepare_trainer(super()._instantiate_trainer(config, callbacks))
