"""The cost of the losses in text models: compared with sentence-transformers, on a million candidates, on long lists.

Our losses are called through `rankstruct.text.RerankerLoss`, theirs as they are, on a model that does nothing but look scores
up, in one thread, in turn. Peak memory is that of a process that trains one step on one list, less that before the step, with an
untrained encoder of 6 layers of 384.

    python scripts/text_speed.py --json text-speed.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import partial

import torch
from sentence_transformers.cross_encoder import CrossEncoder, losses
from torch import nn

import rankstruct as rs
from benchmarks.timing import both_ways, figures, interleaved_ratios, machine, peak_kilobytes
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_result
from rankstruct.text_tables import format_table

SHAPES = ((32, 100), (8, 1000))
OURS = {
    "AP hinge": rs.StructuredHingeLoss("AP"),
    "nDCG@10 hinge": rs.StructuredHingeLoss("nDCG@10"),
    "graded AUC hinge": rs.GradedLoss("AUC"),
    "LambdaLoss nDCG@10": rs.LambdaLoss("nDCG@10"),
    "softmax": rs.SoftmaxLoss(),
}
THEIRS = ("ListNetLoss", "LambdaLoss", "PListMLELoss", "RankNetLoss")
CANDIDATES, DIMENSION = 10**6, 64


class LookedUp(CrossEncoder):
    """A model whose scores are parameters: the score of (query, document) is at the place that the document names."""

    num_labels = 1
    device = torch.device("cpu")

    def __init__(self, scores: torch.Tensor) -> None:
        nn.Module.__init__(self)
        self.scores = nn.Parameter(scores)

    def preprocess(self, pairs, prompt=None, task=None):
        """The places."""
        return {"places": torch.tensor([document for _, document in pairs])}

    def forward(self, tokens):
        """`[pairs, 1]`."""
        return {"scores": self.scores[tokens["places"]].unsqueeze(-1)}


def losses_table(rounds: int):
    """The time of each loss over that of their LambdaLoss."""
    rows = []
    for lists, size in SHAPES:
        generator = torch.Generator().manual_seed(0)
        model = LookedUp(torch.randn(lists * size, generator=generator))
        labels = list((torch.rand(lists, size, generator=generator) < 0.05).float())
        inputs = [[str(i) for i in range(lists)], [list(range(i * size, (i + 1) * size)) for i in range(lists)]]

        def step(loss, inputs=inputs, labels=labels):
            return lambda: loss(inputs, labels).backward()

        made = {f"ours: {name}": rs.text.RerankerLoss(model, loss, mini_batch_size=None) for name, loss in OURS.items()}
        made |= {f"theirs: {name}": getattr(losses, name)(model, mini_batch_size=-1) for name in THEIRS}
        found = interleaved_ratios({name: step(loss) for name, loss in made.items()}, "theirs: LambdaLoss", rounds)
        for name, (seconds, ratio) in found.items():
            its = figures(seconds, ratio)
            rows.append([f"{lists} x {size}", name, f"{its['microseconds'] / 1000:.2f}", f"{its['median']:.2f}"])
    return ["lists x documents", "loss", "ms", "over their LambdaLoss"], rows


def bank_table(rounds: int):
    """One query and a memory bank of a million embeddings, forward and backward, over one sort of a million numbers."""
    generator = torch.Generator().manual_seed(0)
    held = torch.nn.functional.normalize(torch.randn(CANDIDATES, DIMENSION, generator=generator), dim=-1)
    classes = torch.randint(0, 1000, (CANDIDATES,), generator=generator)
    bank = rs.MemoryBank(CANDIDATES, DIMENSION)
    bank.add(held, classes)
    query = torch.randn(1, DIMENSION, generator=generator)
    scores, labels = (query / query.norm()) @ held.T / 0.05, (classes == 0).unsqueeze(0)
    numbers = torch.randn(CANDIDATES, generator=generator)

    def whole(loss):
        embedded = rs.EmbeddingLoss(loss)
        return lambda: embedded(query.clone().requires_grad_(), torch.zeros(1, dtype=torch.int64), bank).backward()

    calls = {"torch.sort": lambda: numbers.sort()}
    for name, loss in OURS.items():
        if name != "LambdaLoss nDCG@10":  # whose pairs are many
            calls[name] = whole(loss)
            calls[f"{name}, the loss alone"] = partial(both_ways, loss, scores, labels)
    rows = []
    for name, (seconds, ratio) in interleaved_ratios(calls, "torch.sort", rounds).items():
        its = figures(seconds, ratio)
        rows.append([name, f"{its['microseconds'] / 1000:.1f}", f"{its['median']:.2f}"])
    return ["one query, 1,000,000 candidates", "ms", "over torch.sort"], rows


def memory(documents: int, at_once: int | None) -> int:
    """Kilobytes that one step on one list adds to the peak."""
    from transformers import BertConfig

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    config.num_labels = 1
    scorer = rs.text.CrossEncoderScorer(config.to_dict(), documents_at_once=at_once)
    rows = torch.randint(5, 20000, (1, documents, 128)).float()
    labels = torch.zeros(1, documents)
    labels[0, 0] = 1
    rs.StructuredHingeLoss("AP")(torch.randn(1, 8), torch.eye(8)[:1])  # compiled
    for weight in scorer.parameters():
        weight.grad = torch.zeros_like(weight)
    before = peak_kilobytes()
    rs.StructuredHingeLoss("AP")(scorer(rows), labels).backward()
    return peak_kilobytes(before) - before


def memory_table():
    """Peak memory of a list, by its length and the slice; also where the C library gives back at once what is freed."""
    rows = []
    for documents, at_once in ((16, None), (64, None), (64, 16), (512, 16)):
        command, found = [sys.executable, __file__, "--memory", str(documents), str(at_once or 0)], []
        for more in ({}, {"MALLOC_MMAP_THRESHOLD_": "131072"}):
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | more)
            found.append(f"{int(json.loads(done.stdout)) / 1024:.0f}")
        rows.append([documents, at_once or "all", *found])
    return ["passages in the list", "scored at once", "peak MB of a step", "MALLOC_MMAP_THRESHOLD_=131072"], rows


def main() -> int:
    """Print the tables and write them."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--rounds", type=int, default=20, help="every call once each")
    parser.add_argument("--memory", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.memory:
        print(memory(given.memory[0], given.memory[1] or None))
        return 0
    tables = {
        "losses": losses_table(given.rounds),
        "bank": bank_table(given.rounds),
        "memory": memory_table(),
    }
    for header, rows in tables.values():
        print(format_table(header, rows), end="\n\n")
    if given.json:
        write_result(given.json, ["python", "scripts/text_speed.py", *sys.argv[1:]], tables, machine=machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
