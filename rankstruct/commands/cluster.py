"""Where cells run: in processes of this machine, or on the cluster of Ray or Dask.

All are backends of joblib. Those that it, Ray and Dask bring return results only when all are there (Ray), wait forever for a job
whose worker died (Dask), or run a single job in this process (loky), so each of these libraries is called here as what it is too:
an executor that returns futures. It decides where a cell runs and what to do when a machine is lost.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

from joblib import parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.parallel import ParallelBackendBase

from rankstruct.checks import check_choice
from rankstruct.launcher import end_with
from rankstruct.messages import import_extra

__all__ = ["cluster"]

_PATIENCE = 5  # seconds to wait for a cluster
_WEEK = 7 * 24 * 3600


class Outcome(NamedTuple):
    """What a job came to: its number, and its result or, in words, why it failed."""

    number: int
    result: Any
    why: str = ""

    @classmethod
    def of_failure(cls, number: int, error: BaseException) -> Outcome:
        """What an error is to a job."""
        return cls(number, None, f"{type(error).__name__}: {error}")


class Futures(ParallelBackendBase):
    """joblib's backend for any executor of jobs that return an `Outcome`; `joblib.Parallel` needs `batch_size=1`.

    An error of the executor, such as the loss of a machine, is the outcome of that job alone, unless it ends the executor.

    Args:
        send: sends a job without arguments, which is called with a keyword argument `number`; returns its future.
        stop: ends all jobs that run.
    """

    supports_retrieve_callback = True

    def __init__(self, send: Callable[[Callable[[], Any]], Future], stop: Callable[[], object], **options: Any) -> None:
        super().__init__(**options)
        self._send, self._stop = send, stop

    def effective_n_jobs(self, n_jobs: int) -> int:
        """At least two: joblib runs a single job in this process; `pre_dispatch` limits the jobs at a time."""
        return max(n_jobs, 2)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Get ready for a call of `joblib.Parallel`."""
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Any, callback: Callable[[Any], object] | None = None) -> Future:
        """Send a batch, of one job."""
        future = self._send(func)
        if callback is not None:
            future.add_done_callback(lambda done: callback((func, done)))
        return future

    def retrieve_result_callback(self, out: tuple[Any, Future]) -> list[Outcome]:
        """The outcome of a batch that has ended."""
        batch, future = out
        try:
            return future.result()
        except BrokenProcessPool:
            raise
        except Exception as error:
            return [Outcome.of_failure(batch.items[0][2]["number"], error)]

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End all jobs that run."""
        self._stop()


def workers(processes: int) -> Futures:
    """Processes of this machine with one thread each, which later calls use again; they end with this process."""
    threads = dict.fromkeys(ParallelBackendBase.MAX_NUM_THREADS_VARS, "1")
    begun: dict[str, Any] = {"initializer": end_with, "initargs": (os.getpid(),), "env": threads, "timeout": _WEEK}
    executor = get_reusable_executor(processes, kill_workers=True, **begun)
    return Futures(executor.submit, end_workers)


def end_workers() -> None:
    """End the processes of `workers` at once."""
    get_reusable_executor(reuse=True).shutdown(kill_workers=True)


@contextmanager
def cluster(on: str | None, address: str | None = None) -> Iterator[None]:
    """Run the cells of the block on a cluster, by making it joblib's active backend.

    All machines need this package, the same working directory, and the data and output folders at the same paths.

    Args:
        on: `"ray"` or `"dask"`; None stays on this machine.
        address: of the cluster, such as `10.0.0.1:6379`; for Ray the one it finds if None, or a new one on this machine.

    Raises:
        ValueError: an unknown name, a missing package, or no cluster at the address.
    """
    if on is None:
        yield
        return
    check_choice("on", on, _CLUSTERS)
    with _CLUSTERS[on](address) as backend, parallel_config(backend):
        yield


def check_address(on: str, address: str | None) -> None:
    """Raise ValueError if the cluster at an address, or at `RAY_ADDRESS`, does not answer; None is checked by the engine."""
    place = (os.environ.get("RAY_ADDRESS") or None) if on == "ray" and address is None else address
    if place is not None and not (on == "ray" and place in ("auto", "local")):
        _check_answers(on, place)


def _engine(on: str, address: str | None) -> Any:
    """The package of a cluster; ValueError if it is missing, or no cluster answers."""
    check_address(on, address)
    return import_extra("distributed" if on == "dask" else on, on, f"on {on}", ValueError)


def _check_answers(on: str, address: str) -> None:
    """Raise ValueError unless a cluster of this kind answers: Ray and Dask themselves wait for minutes, or forever."""
    scheme, _, place = address.rpartition("://")
    host, colon, port = place.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise ValueError(f"address must be HOST:PORT, such as 10.0.0.1:6379, got {address!r}")
    encrypted = os.environ.get("RAY_USE_TLS") == "1" if on == "ray" else scheme not in ("", "tcp")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as connection:
            if encrypted:
                return
            if on == "ray":  # HTTP/2: a preface and empty settings, answered by settings
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            told = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise ValueError(f"no cluster at {address}: {error}; check that it runs, and its address") from error
    # Dask sends its versions at once, and before them their length, a small number.
    if not (told[3:4] == b"\4" if on == "ray" else len(told) > 7 and int.from_bytes(told[:8], "little") < 2**20):
        raise ValueError(f"no cluster of {on.title()} at {address}: something else answers; check its address")


@contextmanager
def ray_at(address: str | None) -> Iterator[Any]:
    """Connect to a cluster of Ray for a block, and yield the package `ray`; address and errors are those of `cluster`."""
    ray = _engine("ray", address)
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        except Exception as error:  # something else may answer there, with anything
            raise ValueError(f"no cluster of Ray{f' at {address}' if address else ''}: {error}") from error
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def _ray(address: str | None) -> Iterator[Futures]:
    """Each cell is a task of one CPU, which Ray runs once more if its worker dies."""
    sent = []

    def send(job: Callable[[], Any]) -> Future:
        sent.append(task.remote(job))
        return sent[-1].future()

    def stop() -> None:
        for each in sent:
            ray.cancel(each, force=True)

    with ray_at(address) as ray:
        task = ray.remote(num_cpus=1, max_retries=1)(_call)
        yield Futures(send, stop)


def _call(job: Callable[[], Any]) -> Any:
    return job()


@contextmanager
def _dask(address: str | None) -> Iterator[Futures]:
    """Each cell is a task, which Dask runs again if its worker dies, `distributed.scheduler.allowed-failures` times."""
    distributed = _engine("dask", address)
    if address is None:
        raise ValueError("Dask needs the address of its scheduler, such as 10.0.0.1:8786")
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
        threads = client.nthreads()
    except Exception as error:  # something else may answer there, with anything
        raise ValueError(f"no scheduler of Dask at {address}: {error}") from error
    sent = []

    def send(job: Any) -> Any:
        sent.append(client.submit(job, key=f"{job.items[0][2]['name']}-{uuid4().hex}"))
        return sent[-1]

    with client:
        if crowded := [name for name, number in threads.items() if number > 1]:
            raise ValueError(
                f"workers of Dask need one thread each, since cells cannot share a process; {crowded[0]} has more: start them "
                "by `dask worker --nthreads 1 --nworkers N`"
            )
        yield Futures(send, lambda: client.cancel(sent, force=True))


_CLUSTERS: dict[str, Callable[..., Any]] = {"dask": _dask, "ray": _ray}
