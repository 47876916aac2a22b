"""Everything that needs a GPU, in one go and at most eight minutes: `python scripts/on_device.py OUT`.

In this order: the tests that need a device; losses and oracles over `torch.sort` there; the first calls, with Triton's cache
empty and filled; an epoch of a factorisation beside its softmax (`--data`, a folder with `train.txt`, `valid.txt` and
`test.txt`); re-ranking and retrieval fine-tuned beside sentence-transformers' losses (`--collection` and `--encoder`). Each part
writes a file of its own into OUT as it ends, and `summary.json` says what has passed, so that a run that is cut short keeps what
it has. A part that fails or takes too long does not stop the others; the exit code is 1 then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_text

SHAPES = ("256x100", "64x1000", "64x4000", "64x41000", "256x41000")
LOSSES = ("AP", "AUC", "pAUC(high=0.1)", "nDCG", "nDCG@10", "P@10", "R@10", "F1", "RR@10", "Lambda", "RankNet")
RELEVANT = (0.05, 0.01, 0.3)
_FIRST_CALLS = """
import json, sys, time
import torch, rankstruct as rs
def seconds(measure):
    scores = torch.randn(64, 1000, device="cuda", requires_grad=True)
    labels = (torch.rand(64, 1000, device="cuda") < 0.05).long()
    torch.cuda.synchronize()
    start = time.perf_counter()
    rs.StructuredHingeLoss(measure)(scores, labels).backward()
    torch.cuda.synchronize()
    return time.perf_counter() - start
torch.zeros(1, device="cuda").sort()
print(json.dumps({measure: seconds(measure) for measure in sys.argv[1:]}))
"""


def main() -> int:
    """Run the parts one after another."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--device", default="cuda", help="as torch names it")
    parser.add_argument("--seconds", type=float, default=480, help="for all parts")
    parser.add_argument("--data", help="implicit feedback, such as Gowalla's")
    parser.add_argument("--collection", help="a collection of texts in BEIR's form")
    parser.add_argument("--encoder", help="a sentence encoder: a local folder")
    options = parser.parse_args()
    out, python, end = options.out, sys.executable, time.monotonic() + options.seconds
    out.mkdir(parents=True, exist_ok=True)
    scripts, there = Path(__file__).parent, ["--device", options.device]
    parts: dict[str, list[str]] = {
        "tests": [python, "-m", "pytest", "-q", "-m", "cuda", str(scripts.parent / "tests")],
    }
    for share in RELEVANT:
        parts[f"ratios-{share:g}"] = [
            *(python, str(scripts / "benchmark.py"), "device", *there, "--relevant", f"{share:g}", "--rounds", "10"),
            *("--precision", "float32", "--shapes", *SHAPES, "--losses", *LOSSES),
            *("--json", str(out / f"ratios-{share:g}.json")),
        ]
    kernels = ["AP", "AP@10", "AUC", "R@10", "F1", "pAUC(high=0.1)", "nDCG", "nDCG@10", "P@10", "RR@10"]
    parts |= {name: [python, "-c", _FIRST_CALLS, *kernels] for name in ("first-calls", "first-calls-cached")}
    if options.data:
        few = ["--losses", "softmax", "AP hinge", "--settings", "1", "--seeds", "1", "--epochs", "1"]
        given = ["--data", options.data, "--output", str(out / "implicit")]
        parts["implicit"] = [python, str(scripts / "implicit_experiment.py"), *given, *there, *few]
    if options.collection and options.encoder:
        given = ["--collection", options.collection, "--encoder", options.encoder, "--seeds", "1"]
        for name in ("text_rerank", "text_finetune"):
            more = there if name == "text_finetune" else []
            parts[name] = [python, str(scripts / f"{name}.py"), *given, *more, "--output", str(out / name)]

    device = torch.cuda.get_device_name(options.device) if torch.cuda.is_available() else options.device
    summary: dict[str, object] = {"device": device, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_CACHE_DIR": cache}
        for name, command in parts.items():
            start = time.monotonic()
            try:
                done = subprocess.run(
                    command,
                    env=environment if name.startswith("first") else None,
                    timeout=max(end - start, 1),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                how, printed = "passed" if done.returncode == 0 else f"exit code {done.returncode}", done.stdout
            except subprocess.TimeoutExpired as error:
                how, printed = "no time left", str(error.stdout or "")
            write_text(out / f"{name}.txt", printed)
            summary[name] = {"result": how, "seconds": round(time.monotonic() - start, 1)}
            write_text(out / "summary.json", json.dumps(summary, indent=2) + "\n")
            print(f"{name}: {how}, {time.monotonic() - start:.0f} s", flush=True)
    return int(any(part["result"] != "passed" for part in summary.values() if isinstance(part, dict)))


if __name__ == "__main__":
    sys.exit(main())
