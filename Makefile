# Every target sets itself up: a fresh clone needs only make, Python 3.11 or newer and a C compiler.
# `make PYTHON=/path/to/python3.12 test` picks another interpreter.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 3
FUZZ_SECONDS ?= 60
PYTEST_ARGS  ?=

BIN         := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
READY       := $(VENV)/.ready
FUZZ_READY  := $(VENV)/.ready-fuzz
BENCH_READY := $(VENV)/.ready-bench
DOCS_READY  := $(VENV)/.ready-docs
SPARK_READY := $(VENV)/.ready-spark
SPARK_TESTS := $(shell grep -lE 'spark_parts|importorskip..(pyspark|deltalake)' tests/test_*.py tests/system/test_*.py)
JAVA        := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
JAVA_MAJOR  := $(shell $(JAVA) -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
HAS_SPARK   := $(shell [ "$(JAVA_MAJOR)" -ge 17 ] 2>/dev/null && echo yes)
OPTIMISED   := $(foreach part,ring protocol wire storage timing sim market_fix,$(wildcard tests/test_$(part)_*.py)) tests/test_conftest.py
# tests/conftest.py schedules: tests that share a Spark session stay in one process.
PYTEST      := -m pytest -q -n $(JOBS) -m 'not campaign and not documentation'
INPUTS      := pyproject.toml constraints.txt $(wildcard src/levelcast/native/_*.[ch])

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test test-docs test-optimised test-spark campaign bench docs lint format types fuzz sanitize clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## create the virtual environment and install the pinned dependencies

run: $(READY) ## run the demo: five cities on this machine, as processes over multicast
	$(BIN)/levelcast demo

test: $(if $(HAS_SPARK),$(SPARK_READY),$(READY)) ## run all tests but those of the documentation (PYTEST_ARGS='-k timing' selects, JOBS=4 uses more processes)
	$(BIN)/python $(PYTEST) $(if $(HAS_SPARK),,$(addprefix --ignore=,$(SPARK_TESTS))) $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,@$(MAKE) --no-print-directory test-optimised)
	$(if $(HAS_SPARK),,@echo "Left out: the pipeline on Spark ($(words $(SPARK_TESTS)) files). Install Java 17 or newer, as in apt-get install openjdk-17-jre-headless, and run make test again.")

# The variable, not the option -O: the processes of pytest-xdist inherit it. The random searches have run without it.
test-optimised: $(READY) ## run the tests of the protocols and the simulator under python -O
	PYTHONOPTIMIZE=1 $(BIN)/python $(PYTEST) -k 'not random_search' -W 'ignore:assertions not in test modules' $(OPTIMISED)

test-docs: $(SPARK_READY) $(DOCS_READY) ## run every command of the documentation, and open its site (needs Java 17)
	$(BIN)/python -m pytest -q -n $(JOBS) -m 'documentation and not campaign' $(PYTEST_ARGS)

test-spark: $(SPARK_READY) ## run only the tests of the pipeline on Spark, which need Java 17
	$(BIN)/python $(PYTEST) $(SPARK_TESTS) $(PYTEST_ARGS)

campaign: $(SPARK_READY) ## run the long tests: Spark on a cluster and during live trading, recorded days (needs Java 17)
	$(BIN)/python -m pytest -q -m campaign $(PYTEST_ARGS)

bench: $(BENCH_READY) ## run the benchmarks and print each result with its limit
	$(BIN)/python -m benchmarks

docs: $(DOCS_READY) ## build the documentation site in build/docs, and check its links
	$(BIN)/python -m website.reference
	$(BIN)/python -m website

lint: $(READY) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY) ## check types
	$(BIN)/python -m mypy

fuzz: $(FUZZ_READY) ## fuzz the decoders for FUZZ_SECONDS seconds in all
	FUZZ_SECONDS=$(FUZZ_SECONDS) timeout $$(( $(FUZZ_SECONDS) + 60 )) $(BIN)/python tests/fuzz/run_atheris.py

sanitize: $(READY) ## run the C modules under AddressSanitizer and UndefinedBehaviorSanitizer: tests and mutated inputs
	$(BIN)/python tests/fuzz/run_sanitized.py

clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) build dist src/levelcast.egg-info src/levelcast/native/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The build backend is installed first, from the same pins, so that nothing unpinned is fetched to build.
$(READY): $(INPUTS)
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "Levelcast needs Python 3.11 or newer, and there is no '$(PYTHON)' here: name one with make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Levelcast needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1): name a newer one with make PYTHON=..." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(PIP_INSTALL) setuptools
	$(PIP_INSTALL) --no-build-isolation --editable '.[test]'
	@touch $@

$(BENCH_READY): $(READY)
	@$(PIP_INSTALL) --no-build-isolation --editable '.[bench]'
	@touch $@

$(DOCS_READY): $(READY)
	@$(PIP_INSTALL) --no-build-isolation --editable '.[docs]'
	@touch $@

$(SPARK_READY): $(READY)
	@test -n "$(HAS_SPARK)" || { echo "Spark needs Java 17 or newer, and there is none here: install a JRE." >&2; exit 1; }
	@$(PIP_INSTALL) --no-build-isolation --editable '.[test-spark]'
	@touch $@

$(FUZZ_READY): $(READY)
	@$(PIP_INSTALL) --no-build-isolation --editable '.[fuzz]' || \
		{ echo "The fuzzer atheris could not be installed for $$($(BIN)/python -V): see docs/dependencies.md." >&2; exit 1; }
	@touch $@
