"""Kernels called from threads, after a fork, in DataLoader workers and under DistributedDataParallel: the same answers."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct.kernels import threads

pytestmark = pytest.mark.slow


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(50, 1000, generator=generator)
    return scores, torch.rand(50, 1000, generator=generator) < 0.2


def answer(seed):
    return rs.most_violated(*batch(seed), "AP")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def same(found, expected):
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_result_does_not_depend_on_the_number_of_threads(two_threads):
    many = answer(0)
    assert threads._pool is not None
    torch.set_num_threads(1)
    assert same(many, answer(0))


def test_four_threads_at_once(two_threads):
    expected = [answer(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(map(same, pool.map(answer, range(8)), expected))


def test_errors_cross_threads(two_threads):
    scores, labels = batch(0)
    scores[49, 3] = float("nan")
    with pytest.raises(ValueError, match=r"document \[49, 3\] is nan"):
        rs.most_violated(scores, labels, "AUC")


def test_every_share_is_finished_and_its_errors_are_raised(two_threads):
    """A slow share is waited for; an error in any share, whichever thread has it, is raised."""
    import time

    offsets = np.arange(0, 800_001, 100_000)
    done = []

    def slow(first, last):
        time.sleep(0.02 * first)
        done.append((first, last))
        return -1

    assert threads.share_lists(slow, offsets, 2) == -1
    assert sorted(done) == [(i, i + 1) for i in range(8)]

    def failing(first, last):
        if first == 3:
            time.sleep(0.1)
            raise RuntimeError("share 3")
        return -1

    for _ in range(5):
        with pytest.raises(RuntimeError, match="share 3"):
            threads.share_lists(failing, offsets, 2)
    assert threads.share_lists(lambda first, last: 7 if first == 5 else -1, offsets, 2) == 7


# A child of this process would inherit pytest, coverage and their locks; a fresh interpreter forks cleanly.
def run_python(code):
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PRELUDE = """
import os, torch, rankstruct as rs
torch.set_num_threads(2)
def answer(seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(50, 1000, generator=g)
    return rs.most_violated(scores, torch.rand(50, 1000, generator=g) < 0.2, "AP").value
expected = answer(1)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this platform")
def test_after_a_fork():
    # torch's own OpenMP threads do not survive a fork, so nothing here is large enough for torch to use them.
    code = """
    from rankstruct.kernels import dispatch, threads
    dispatch._WORTH_A_THREAD = 1000
    scores = torch.randn(20, 1000)
    labels = torch.rand(20, 1000) < 0.2
    expected = rs.most_violated(scores, labels, "AP").value
    assert threads._pool is not None
    child = os.fork()
    if child == 0:
        assert threads._pool is None
        found = rs.most_violated(scores, labels, "AP").value
        os._exit(0 if torch.equal(found, expected) and threads._pool is not None else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_python("import os, torch, rankstruct as rs\ntorch.set_num_threads(2)\n" + textwrap.dedent(code)) == "0"


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this platform")
def test_a_loss_that_was_used_works_after_a_fork():
    """Parent and child go on by themselves, with what they have learnt and what they learn; also while threads are at work."""
    code = """
    import os, threading, torch, rankstruct as rs
    torch.set_num_threads(1)
    losses = [rs.StructuredHingeLoss(measure) for measure in ("AP", "nDCG", "RR@3")]
    scores = torch.arange(60.0).view(3, 20).sin()
    def answers(grades):
        labels = torch.arange(60).view(3, 20) % grades
        found = []
        for loss in losses:
            leaf = scores.clone().requires_grad_()
            value = loss(leaf, labels)
            found += [value.detach(), torch.autograd.grad(value, leaf)[0]]
        return found
    before = answers(2)
    stop = threading.Event()
    def work():
        while not stop.is_set():
            answers(3)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads: thread.start()
    codes = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            same = all(map(torch.equal, answers(2), before))
            os._exit(0 if same and all(each.isfinite().all() for each in answers(5)) else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for thread in threads: thread.join()
    print(sum(codes), all(map(torch.equal, answers(5), answers(5))))
    """
    assert run_python(code) == "0 True"


def test_in_dataloader_workers():
    code = """
    class Answers(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, i): return answer(i)
    found = torch.cat(list(torch.utils.data.DataLoader(Answers(), batch_size=1, num_workers=2)))
    print(torch.equal(found, torch.stack([answer(i) for i in range(4)])))
    """
    assert run_python(PRELUDE + textwrap.dedent(code)) == "True"


ONE_RANK = """
import sys, torch, rankstruct as rs
rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
features, labels = torch.load(f"{folder}/batch.pt")
model = torch.nn.parallel.DistributedDataParallel(rs.LinearScorer(2))
rs.StructuredHingeLoss("AP")(model(features[rank::world]), labels[rank::world]).backward()
if rank == 0:
    torch.save(model.module.linear.weight.grad, f"{folder}/gradient.pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_distributed_data_parallel_gradient_is_that_of_the_whole_batch(tmp_path):
    scores, labels = batch(3)
    features = torch.stack([scores, scores.cos()], dim=-1)
    torch.save((features, labels), tmp_path / "batch.pt")
    ranks = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", ONE_RANK, str(rank), "2", str(tmp_path)])
        for rank in range(2)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    model = rs.LinearScorer(2)
    rs.StructuredHingeLoss("AP")(model(features), labels).backward()
    torch.testing.assert_close(torch.load(tmp_path / "gradient.pt"), model.linear.weight.grad)
