# The commands of a checkout. PyTorch is better installed first: pip brings the default build for your platform.
ARGS ?=
TORCH ?= torch

.PHONY: test slow lint docs wheel lowest results benchmark ci

test:  ## install what the tests need, and run them: the README's command
	pip install -e ".[test]" && pytest -n auto --dist worksteal $(ARGS)

slow:  ## the tests that `pytest` leaves out: long enumerations, notebooks, soak and fuzz runs
	pytest -n auto --dist worksteal -m slow --durations 30 $(ARGS)

lint:
	ruff check . && ruff format --check . && mypy && lint-imports

docs:  ## the site, in docs/_build/html
	pip install -e ".[docs]" && sphinx-build -W --keep-going -q -b html docs docs/_build/html

wheel:  ## build sdist and wheel, and try the wheel in an environment and a folder of its own
	python scripts/try_wheel.py --torch "$(TORCH)"

lowest:  ## the same with the lowest versions that pyproject.toml allows
	python scripts/try_wheel.py --torch "$(TORCH)" --lowest

results:  ## the tables of the pages and the README's figures, from docs/results
	python scripts/write_results.py

benchmark:  ## the figures of speed, for docs/results; the machine should be idle
	rankstruct benchmark oracles --json docs/results/oracles.json
	rankstruct benchmark losses --json docs/results/losses.json

ci: test docs slow lint wheel
