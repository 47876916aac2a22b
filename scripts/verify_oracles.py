"""Compare every oracle with all rankings of random short lists: `python scripts/verify_oracles.py --lists 100000`.

The oracles of diverse rankings are compared with all diverse ones. The slow twins live in tests/brute_force.py, so this runs
from a checkout.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

import rankstruct as rs
from rankstruct.tables import format_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from brute_force import diverse_decay, diverse_hinges, hinges, random_groups, random_list
from combinations import diverse_combinations, legal_combinations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=int, default=100_000, help="random lists in all (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1800, help="stop after so many seconds (default: %(default)s)")
    parser.add_argument("--most", type=int, default=5, help="documents of the longest list (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    options = parser.parse_args()

    pairs: dict = {}
    for combinations, diverse in ((legal_combinations(), False), (diverse_combinations(), True)):
        for measure, feature_map, reference in combinations:
            pairs.setdefault((measure, feature_map, diverse), []).append(reference)
    counts: dict[tuple[str, str], list[float]] = {}
    rng = np.random.default_rng(options.seed)
    start, done = time.monotonic(), 0
    bar = tqdm(total=options.lists, unit="list")
    while done < options.lists and time.monotonic() - start < options.seconds:
        for (measure, feature_map, diverse), references in pairs.items():
            scores, labels, size = random_list(rng, isinstance(feature_map, rs.Positional), options.most)
            given: dict = {}
            if diverse:
                groups, labels = random_groups(rng, labels)
                given = {"groups": torch.tensor(groups)}
                c = diverse_decay(measure, feature_map.decay, len(labels))
                expected = diverse_hinges(measure, c, labels, groups, scores)
            else:
                expected = hinges(measure, feature_map, labels, scores)
            judged = rs.Diverse(measure) if diverse else measure
            name = "diverse " * diverse + type(feature_map).__name__
            row = counts.setdefault((type(measure).__name__, name), [0, 0, 0, 0.0])
            for reference in references:
                found = rs.most_violated(
                    torch.tensor(scores),
                    torch.tensor(labels),
                    judged,
                    feature_map=feature_map,
                    reference=reference,
                    **given,
                )
                by_direction = found.task_loss.item() + float(found.direction.numpy() @ scores)
                error = (
                    max(abs(found.value.item() - expected[reference]), abs(by_direction - expected[reference])) / size
                )
                row[1] += 1
                row[2] += error > 1e-9
                row[3] = max(row[3], error)
                if error > 1e-9:
                    print(
                        f"FAILED {name} {measure.name} {feature_map.name} {reference}: {scores.tolist()} {labels.tolist()}"
                    )
                    print(*(f"{key} {value.tolist()}" for key, value in given.items()))
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
