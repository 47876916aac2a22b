"""Compare every oracle with all rankings of random short lists: `python scripts/verify_oracles.py --lists 100000`.

The slow twins live in tests/brute_force.py, so this runs from a checkout.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

import rankstruct as rs
from rankstruct.oracles.combinations import legal_combinations
from rankstruct.tables import format_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from brute_force import hinges, random_list


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=int, default=100_000, help="random lists in all (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1800, help="stop after so many seconds (default: %(default)s)")
    parser.add_argument("--most", type=int, default=5, help="documents of the longest list (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    options = parser.parse_args()

    pairs: dict = {}
    for measure, feature_map, reference in legal_combinations():
        pairs.setdefault((measure, feature_map), []).append(reference)
    counts: dict[tuple[str, str], list[float]] = {}
    rng = np.random.default_rng(options.seed)
    start, done = time.monotonic(), 0
    bar = tqdm(total=options.lists, unit="list")
    while done < options.lists and time.monotonic() - start < options.seconds:
        for (measure, feature_map), references in pairs.items():
            scores, labels, size = random_list(rng, isinstance(feature_map, rs.Positional), options.most)
            expected = hinges(measure, feature_map, labels, scores)
            row = counts.setdefault((type(measure).__name__, type(feature_map).__name__), [0, 0, 0, 0.0])
            for reference in references:
                found = rs.most_violated(
                    torch.tensor(scores), torch.tensor(labels), measure, feature_map=feature_map, reference=reference
                )
                by_direction = found.task_loss.item() + float(found.direction.numpy() @ scores)
                error = (
                    max(abs(found.value.item() - expected[reference]), abs(by_direction - expected[reference])) / size
                )
                row[1] += 1
                row[2] += error > 1e-9
                row[3] = max(row[3], error)
                if error > 1e-9:
                    print(f"FAILED {measure.name} {feature_map.name} {reference}: {scores.tolist()} {labels.tolist()}")
            row[0] += 1
            done += 1
            bar.update()
    bar.close()
    rows = [[*name, int(a), int(b), int(c), f"{d:.1e}"] for name, (a, b, c, d) in counts.items()]
    print(format_table(["measure", "feature map", "lists", "comparisons", "failures", "largest error"], rows))
    failures = sum(row[4] for row in rows)
    print(f"{len(pairs)} pairs of measure and feature map, {done} lists, {sum(r[3] for r in rows)} comparisons")
    print(f"failures: {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
