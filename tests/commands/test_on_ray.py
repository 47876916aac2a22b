"""`fit --on ray`: the weights of one process, also after deaths, and what is said at once."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from programs import run_in

from rankstruct.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Lists of equal numbers of documents; 16 training batches, so that four processes split none."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, number in ("train", 48), ("vali", 6), ("test", 5):
        features = rng.normal(size=(number * 8, 5))
        labels = (features[:, 0] + 0.5 * rng.normal(size=len(features)) > 0.5).astype(int)
        rows = zip(labels, features, strict=True)
        lines = [
            f"{label} qid:{i // 8} " + " ".join(f"{j}:{x:.4f}" for j, x in enumerate(row, 1))
            for i, (label, row) in enumerate(rows)
        ]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def given(data, output, *more):
    options = ["--data.lists_per_batch", 3, "--data.drop_empty", "false", "--early_stopping.patience", 1000]
    return ["fit", *map(str, ["--data.path", data, "--output", output, *options, *more])]


@contextmanager
def nodes_of_ray(number, cpus):
    """A cluster of nodes, and a head without CPUs; the nodes may be replaced."""
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False, "object_store_memory": 10**8}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patched.setenv("RAY_worker_niceness", "0")  # else they starve where other tests run beside
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **quiet})
        try:
            yield made, [made.add_node(num_cpus=cpus, object_store_memory=10**8) for _ in range(number)]
        finally:
            made.shutdown()


def last_of(output):
    return torch.load(run_in(output) / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.slow
@pytest.mark.needs("ray")
@pytest.mark.filterwarnings("default")  # Ray's own
def test_two_nodes_of_two_workers_give_the_weights_of_one_process(data, tmp_path, capsys):
    """A step of four takes four batches, as one with accumulated gradients does."""
    with nodes_of_ray(2, 2) as (cluster, _):
        for scorer in "LinearScorer", "MLPScorer":
            more = ["--model.scorer", f"rankstruct.{scorer}", "--model.loss", "SoftmaxLoss", "--trainer.max_epochs", 3]
            # The softmax does not depend on the last bias, and of a gradient that is rounding alone Adam makes whole steps.
            more += ["--model.regularization", 0.01]
            alone = ["--trainer.accumulate_grad_batches", 4, "--trainer.accelerator", "cpu", "--trainer.devices", 1]
            outputs = [tmp_path / scorer / name for name in ("one", "ray")]
            assert main(given(data, outputs[0], *more, *alone)) == 0
            report = capsys.readouterr().out
            on = ["--on", "ray", "--workers", 4, "--address", cluster.address]
            assert main(given(data, outputs[1], *more, *on)) == 0
            printed = capsys.readouterr()
            assert [printed.err.count(f"epoch {n}: loss ") for n in range(3)] == [1, 1, 1]
            runs = list(map(run_in, outputs))
            assert printed.out.split(str(runs[1]))[0] == report.split(str(runs[0]))[0]
            one, four = map(last_of, outputs)
            assert one["global_step"] == four["global_step"] == 12
            for name, value in one["state_dict"].items():
                torch.testing.assert_close(four["state_dict"][name], value, rtol=0, atol=1e-5)
            names = [{path.name for path in run.iterdir() if "tfevents" not in path.name} for run in runs]
            assert names[0] == names[1]


def start(log, args):
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}
    with log.open("a") as file:
        command = [sys.executable, "-m", "rankstruct", *map(str, args)]
        return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)


def workers_of(nodes):
    psutil = pytest.importorskip("psutil")
    raylets = [psutil.Process(info.process.pid) for node in nodes for info in node.all_processes.get("raylet", [])]
    return [each for raylet in raylets for each in raylet.children() if "RayTrainWorker" in each.cmdline()[0]]


@pytest.mark.soak
@pytest.mark.needs("ray")
@pytest.mark.filterwarnings("default")  # Ray's own
def test_whatever_dies_the_weights_are_those_of_an_uninterrupted_run(data, tmp_path):
    """`kill -9` of a worker, the command and a node at random moments, from the first second of the workers on."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    dropout = [
        "--model.scorer",
        "rankstruct.MLPScorer",
        "--model.scorer.init_args.dropout",
        0.3,
        "--average_weights",
        "true",
    ]
    with nodes_of_ray(2, 1) as (cluster, nodes):
        on = ["--on", "ray", "--workers", 2, "--address", cluster.address]

        def fit(name):
            return start(
                tmp_path / f"{name}.log", given(data, tmp_path / name, *dropout, "--trainer.max_epochs", 60, *on)
            )

        assert fit("whole").wait(600) == 0, (tmp_path / "whole.log").read_text()
        for name in ("worker", "command", "node"):
            command = fit(name)
            while not workers_of(nodes):
                assert command.poll() is None, (tmp_path / f"{name}.log").read_text()
                time.sleep(0.2)
            time.sleep(rng.uniform(0, 20))
            if name == "worker":
                for each in workers_of(nodes)[:1]:
                    each.send_signal(signal.SIGKILL)
            elif name == "node":
                number = rng.randrange(2)
                cluster.remove_node(nodes[number], allow_graceful=False)
                nodes[number] = cluster.add_node(num_cpus=1, object_store_memory=10**8)
            else:
                command.kill()
                command.wait(60)
                run = run_in(tmp_path / name)
                begun = (run / "checkpoints" / "last.ckpt").is_file()
                if not begun:
                    run.rename(tmp_path / "nothing")
                command = start(tmp_path / f"{name}.log", ["fit", "--run", run, *on]) if begun else fit(name)
            assert command.wait(600) == 0, (tmp_path / f"{name}.log").read_text()
            states = [last_of(tmp_path / each) for each in ("whole", name)]
            assert states[0]["global_step"] == states[1]["global_step"]
            for key in ("state_dict", "current_model_state", "averaging_state"):
                for part, value in states[0][key].items():
                    assert torch.equal(torch.as_tensor(value), torch.as_tensor(states[1][key][part])), (name, key, part)
            assert not list(run_in(tmp_path / name).rglob("*.part"))


@pytest.mark.needs("ray")
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_run_is_that_of_its_command_alone(tmp_path, monkeypatch):
    """An attempt goes on from a checkpoint of this command, by the run's config; an older one is the user's choice."""
    from rankstruct.commands import on_ray

    called, last = [], tmp_path / "checkpoints" / "last.ckpt"
    monkeypatch.setattr(on_ray, "run_cli", lambda kind, args, folder: called.append(args))
    last.parent.mkdir()
    for path in last, tmp_path / "config.yaml":
        path.touch()
    anew = ["fit", "--config", "edited-since.yaml", "--ckpt_path", "null"]
    work = {"args": anew, "folder": str(tmp_path), "directory": os.getcwd(), "version": on_ray.__version__}
    work["saved"] = on_ray._saved(tmp_path)
    with pytest.raises(ValueError, match="is not that of the command; all machines need the same folders"):
        on_ray._work(work)  # on a machine that does not share the folder
    (tmp_path / ".progress").touch()
    on_ray._work(work)
    os.utime(last, ns=(1, 1))
    on_ray._work(work)
    assert called == [anew, ["fit", "--config", str(tmp_path / "config.yaml"), "--ckpt_path", str(last)]]

    place = SimpleNamespace(workers=1, gpu=False, address=None)
    with on_ray.locked(tmp_path / "ray"), pytest.raises(ValueError, match="another process is writing to it"):
        on_ray.train(anew, tmp_path, place)
    assert (tmp_path / ".progress").exists()  # of the other command


def test_what_is_wrong_is_said_before_anything_is_trained(data, tmp_path, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def said(*more):
        assert main(given(data, tmp_path / "out", "--model.scorer", "LinearScorer", "--on", "ray", *more)) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line.removeprefix("rankstruct fit: ")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert said() == "on ray needs ray, which is not installed: pip install 'rankstruct[ray]'"
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "rankstruct.commands.fit", None)  # said before it is imported, which takes seconds
        assert said("--address", address).startswith(f"no cluster at {address}: ")
    told = "--workers has no effect without --on; remove it"
    assert main(["fit", "--config", "quickstart", "--workers", "2"]) == 1
    assert capsys.readouterr().err == f"rankstruct fit: {told}\n"

    here = SimpleNamespace(cluster_resources=lambda: {"CPU": 3.0}, is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "ray", here)
    known = "--workers and --gpu determine the processes"
    assert said("--trainer.devices", "4") == f"trainer.devices must be auto or 1 with --on ray, got '4': {known}"
    assert "trainer.accelerator must be auto or cpu with --on ray, got 'gpu'" in said("--trainer.accelerator", "gpu")
    assert "trainer.accelerator must be auto or gpu or cuda with --on ray --gpu" in said(
        "--gpu", "--trainer.accelerator", "cpu"
    )
    assert said("--workers", "4") == (
        "--workers 4 needs a CPU for each, but the cluster has 3; use fewer, or a larger cluster"
    )
    assert said("--gpu").startswith("--workers 1 needs a GPU for each, but the cluster has 0; ")
    assert not (tmp_path / "out").exists()
