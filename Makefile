# The commands of a checkout. PyTorch is better installed first: pip brings the default build for your platform.
ARGS ?=
TORCH ?= torch
FIRST = --torch "$(TORCH)" $(if $(TORCH_PACKAGES),--packages "$(TORCH_PACKAGES)")

.PHONY: test rest soak sanitize lint docs setup wheel lowest results benchmark ci

test:  ## install what the tests need, and run them: the README's command
	pip install -e ".[test]" && pytest -n auto --dist worksteal $(ARGS)

rest:  ## install every extra, and run what `make test` leaves out: tests that need one, notebooks, runs that are killed
	pip install -e ".[dev]" && pytest -n auto --dist worksteal -m "(slow or needs) and not soak" --durations 30 $(ARGS)

soak:  ## before a release, in about an hour: deliberate faults in the kernels, kills of each command, benchmarks, long enumerations
	pip install -e ".[dev]" && pytest -n auto --dist worksteal -m soak --durations 30 $(ARGS)

# Built to stop at a wrong address, index or operation. Python has to load the runtimes of the sanitizer and of C++ first.
CORE := build/sanitize/_core.so
SANITIZED = LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16 RANKSTRUCT_CORE="$(CURDIR)/$(CORE)"

sanitize:  ## the tests of the loops, and damaged data, with a core that checks what it does
	mkdir -p $(dir $(CORE))
	$(CXX) -std=c++20 -O1 -g -DRANKSTRUCT_CHECKED -fsanitize=address,undefined -fno-sanitize-recover=all -ffp-contract=off \
		-fno-exceptions -fno-rtti -fPIC -shared -Wall -Wextra rankstruct/kernels/kernels.cpp -o $(CORE)
	$(SANITIZED) pytest -n 2 --dist worksteal tests/oracles tests/kernels tests/losses $(ARGS)
	$(SANITIZED) python scripts/fuzz.py --inputs 20000 --kind svmlight groups packed csv arff run qrels scores ratings cache map scorer

lint:
	ruff check . && ruff format --check . && mypy && lint-imports
	python scripts/concepts.py

setup:  ## the README's commands that train and build the documentation, from nothing; CLONE keeps the clone
	python scripts/time_setup.py $(FIRST) --only train docs --json build/setup.json $(if $(CLONE),--clone "$(CLONE)")

docs:  ## the site, in docs/_build/html
	sphinx-build -W --keep-going -q -b html docs docs/_build/html

wheel:  ## build sdist and wheel, and try the wheel in an environment and a folder of its own
	python scripts/try_wheel.py $(FIRST)

lowest:  ## the same with the lowest versions that pyproject.toml allows
	python scripts/try_wheel.py --torch "$(TORCH)" --lowest

results:  ## the tables of the pages and the README's figures, from docs/results
	python scripts/write_results.py

benchmark:  ## the figures of speed, for docs/results; the machine should be idle
	python scripts/benchmark.py oracles --json docs/results/oracles.json
	python scripts/benchmark.py losses --json docs/results/losses.json

ci: test setup wheel rest lint
