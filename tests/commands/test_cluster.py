"""Cells on clusters: the results of this machine, deaths, and what is said of a cluster that is not there."""

import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from cell_works import die, square
from joblib import parallel_config

from rankstruct.cli import main as rankstruct
from rankstruct.commands.cells import Cell, CellFolders, CellsFailed, _work
from rankstruct.commands.cluster import cluster


def squares(tmp_path, name, **options):
    wanted = [Cell(str(n), {}, (n, str(tmp_path))) for n in (1, 2, 13, 3)]
    with CellFolders(tmp_path / name) as store:
        with pytest.raises(CellsFailed, match=r"1 of 4 cells failed; .*13: ValueError: thirteen"):
            store.run(square, wanted, **options)
        return store.run(square, [cell for cell in wanted if cell.name != "13"], processes=0)


@pytest.mark.needs("distributed")
@pytest.mark.filterwarnings("default")  # Dask's own
@pytest.mark.parametrize("processes", [None, 1])
def test_dask_gives_what_this_machine_gives(processes, tmp_path):
    from distributed import LocalCluster

    own = {"processes": False, "protocol": "tcp://", "dashboard_address": None}
    with LocalCluster(n_workers=1, threads_per_worker=1, **own) as dask, cluster("dask", dask.scheduler_address):
        found = squares(tmp_path, "dask", processes=processes)
    assert found == squares(tmp_path, "here", processes=0)
    assert found.reused == 3
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, **own) as dask,
        pytest.raises(ValueError, match=r"workers of Dask need one thread each.* has more: start them by `dask worker"),
        cluster("dask", dask.scheduler_address),
    ):
        pass


@pytest.mark.soak
@pytest.mark.needs("ray")
@pytest.mark.filterwarnings("default")  # Ray's own
def test_two_nodes_of_ray_give_what_this_machine_gives_and_bear_deaths(tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # of the nodes
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=2)
        deadly = [Cell(str(n), {}, (n, times, str(tmp_path))) for n, times in enumerate((0, 1, 9, 0))]
        with cluster("ray", nodes.address):
            found = squares(tmp_path, "ray")
            with (
                CellFolders(tmp_path / "dead") as store,
                pytest.raises(CellsFailed, match=r"1 of 4 cells failed.* 2: WorkerCrashedError"),
            ):
                store.run(die, deadly)
    finally:
        nodes.shutdown()
    assert found == squares(tmp_path, "here", processes=0)
    assert [path.parent.name for path in sorted(tmp_path.glob("dead/*/result.json"))] == ["0", "1", "3"]
    assert [len(list(tmp_path.glob(f"died-{n}-*"))) for n in (1, 2)] == [1, 2]


def test_what_is_wrong_with_a_cluster_is_said_at_once(tmp_path, monkeypatch, capsys):
    def said(*given):
        with pytest.raises(ValueError) as error, cluster(*given):
            pass
        return str(error.value)

    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert said("rya") == "on must be one of 'dask', 'ray', got 'rya'; did you mean ray?"
    assert said("ray", "here") == "address must be HOST:PORT, such as 10.0.0.1:6379, got 'here'"
    for scheme in ("", "tcp://"):
        assert said("dask", f"{scheme}{address}").startswith(f"no cluster at {scheme}{address}: ")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert said("ray") == "on ray needs ray, which is not installed: pip install 'rankstruct[ray]'"
    given = ["cross-validate", "--config", "quickstart", "--output", str(tmp_path / "out")]
    assert rankstruct([*given, "--on", "ray", "--address", address]) == 1
    assert f"no cluster at {address}: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        rankstruct([*given, "--on", "rai"])
    assert "did you mean ray?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("on", ["dask", "ray"])
def test_what_does_not_answer_as_a_cluster_is_not_waited_for(on, monkeypatch):
    def greet():
        connection, _ = server.accept()
        with connection, suppress(ConnectionError):
            connection.sendall(b"SSH-2.0-something\r\n")
            connection.recv(100)

    def said():
        with pytest.raises(ValueError) as error, cluster(on, address):
            pass
        return str(error.value)

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        assert said() == f"no cluster of {on.title()} at {address}: something else answers; check its address"
        thread.join()
        monkeypatch.setattr("rankstruct.commands.cluster._PATIENCE", 0.2)
        assert said().startswith(f"no cluster at {address}: timed out; ")


def test_cells_share_no_process(tmp_path):
    with (
        parallel_config("threading"),
        CellFolders(tmp_path) as store,
        pytest.raises(ValueError, match="cells do not run on joblib's ThreadingBackend; use its default, or"),
    ):
        store.run(square, [Cell("1", {}, (1, str(tmp_path)))], processes=2)


def test_a_machine_that_does_not_see_the_folders_says_so(tmp_path):
    place = str(tmp_path), tmp_path / "elsewhere" / ".announced"
    told = _work(number=3, name="a", arguments=(), place=place, work=dict)
    assert (told.number, told.result) == (3, None)
    assert told.why.endswith("all machines need the same folders: share them")
