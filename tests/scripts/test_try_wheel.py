"""What a wheel holds, and the lowest versions that it says it takes; the README's test command is that of the Makefile."""

import zipfile
from pathlib import Path

import pytest
from scripts_by_path import script

ROOT = Path(__file__).parents[2]


def test_lowest_versions_are_read_from_a_wheel(tmp_path):
    wheel = tmp_path / "x-1-py3-none-any.whl"
    lines = [
        "Name: x",
        "Requires-Dist: torch>=2.13",
        "Requires-Dist: jsonargparse[signatures]<5,>=4.40",
        "Requires-Dist: unbounded",
        "Requires-Dist: pytest>=8; extra == 'test'",
        "Requires-Dist: optuna>=5.0.1; extra == 'tune'",
        'Requires-Dist: x[docs]; extra == "test"',
        'Requires-Dist: sphinx>=8; extra == "docs"',
    ]
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("x-1.dist-info/METADATA", "\n".join(lines))
    lowest = script("try_wheel").lowest_versions
    assert lowest(wheel) == ["torch==2.13", "jsonargparse==4.40"]
    assert lowest(wheel, "test") == ["torch==2.13", "jsonargparse==4.40", "pytest==8", "sphinx==8"]


def test_a_wheel_holds_the_package_alone(tmp_path):
    wheel = tmp_path / "x-1-py3-none-any.whl"
    mine = ["rankstruct/cli.py", "rankstruct/configs/quickstart.yaml", "rankstruct-1.dist-info/METADATA"]
    others = ["scripts/experiment.py", "papers/plan.py", "rankstruct/configs/experiment-wins.yaml"]
    with zipfile.ZipFile(wheel, "w") as file:
        for name in mine + others:
            file.writestr(name, "")
    assert script("try_wheel").foreign_files(wheel) == others


def test_the_commands_of_the_readme_are_those_that_are_timed(tmp_path):
    timing = script("time_setup")
    found = timing.commands((ROOT / "README.md").read_text())
    assert "rankstruct fit --config quickstart" in found["train"]
    assert "pytest" in found["test"]
    assert '".[docs]" && sphinx-build' in found["docs"]
    assert sorted(found) == sorted(timing.ORDER)
    with pytest.raises(ValueError, match="Set up must have 2 commands, got 1"):
        timing.commands("\n## Set up\n\n```bash\npip install x\n```\n\n## Next\n\n```bash\ny\n```\n")
    assert [timing.in_words(each) for each in (9.6, 64.4, 150.0, 241.0)] == [
        "10 seconds",
        "64 seconds",
        "2 minutes",
        "4 minutes",
    ]


def test_the_readme_runs_what_continuous_integration_runs():
    recipe = (ROOT / "Makefile").read_text().split("\ntest:", 1)[1].split("\n\t", 1)[1].split("\n", 1)[0]
    command = recipe.removesuffix(" $(ARGS)")
    assert "pytest" in command
    set_up = (ROOT / "README.md").read_text().split("## Set up", 1)[1].split("\n## ", 1)[0]
    assert f"```bash\n{command}\n```" in set_up
    assert set_up.count("pytest") == 1
