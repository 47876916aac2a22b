"""Types arrive at a user: what pyright says of a script of his; mypy sees it in `make lint`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "user_script.py"


@pytest.mark.needs("pyright")
def test_pyright_strict(tmp_path):
    (tmp_path / SCRIPT.name).write_text(
        SCRIPT.read_text()
    )  # outside the checkout: the library is seen as it is installed
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    try:
        told = subprocess.run(
            [
                sys.executable,
                "-m",
                "pyright",
                "--outputjson",
                "--pythonpath",
                sys.executable,
                "--project",
                str(tmp_path),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        report = json.loads(told.stdout)
    except (json.JSONDecodeError, subprocess.TimeoutExpired):
        pytest.skip("pyright could not start; at its first start it fetches itself")
    assert report["summary"]["filesAnalyzed"] == 1
    found = [(each["range"]["start"]["line"] + 1, each["message"]) for each in report["generalDiagnostics"]]
    assert found == []
