# Every target sets up .venv by itself: all that is needed is Python 3.11+ and a way for pip to install packages.
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
# One more than there are processors: tests wait for the disk, for Spark, and for processes of their own.
WORKERS = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

export PYTHONUNBUFFERED = 1
# Compiled once and kept, also where the surroundings forbid it: hundreds of processes are started here.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help pure tier demo test lint unit agreement agreement-short conformance bench docs proof slow clean
.DEFAULT_GOAL := help

help:
	@echo "make demo          a guided tour on a store that it makes and leaves"
	@echo "make test          lint, the tests, and the agreement with stores that real brokers wrote"
	@echo "make lint          format, lint and types"
	@echo "make unit          the tests alone"
	@echo "make agreement     every value compared with what the real classes read: counts and differences"
	@echo "make agreement-short  the same without the 2637 recorded starts of brokers, which take minutes"
	@echo "make conformance   against the real classes; needs a JDK 17 and Maven"
	@echo "make slow          the long tests"
	@echo "make proof         power cuts, faults, kills, mutants, bad sectors: for PROOF_MINUTES (60), on from the last run"
	@echo "make bench         ratios against a limit or a peer, and absolute times"
	@echo "make docs          write all generated files"
	@echo "make clean         remove .venv and caches"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "rmqtool needs Python 3.11 or newer; '$(PYTHON)' is missing or older. Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up .venv (minutes at the first time) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --quiet --no-input --disable-pip-version-check -e '.[dev,rocksdb,spark]'
	@touch $@

# The kernel is compiled again when its sources have changed; without a compiler everything works, slower.
KERNEL := .venv/kernel
$(KERNEL): $(READY) $(wildcard native/*.[ch])
	@$(BIN)/python native/compile_kernel.py
	@touch $@

tier: $(KERNEL)
	@$(BIN)/rmqtool --version -v

demo: tier
	@$(BIN)/rmqtool demo "$$(mktemp -d)/demo"

test: tier lint unit agreement-short

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: $(KERNEL)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist loadgroup

agreement: $(KERNEL)
	$(BIN)/python -m tests.agreement

agreement-short: $(KERNEL)
	$(BIN)/python -m tests.agreement --short

# Brokers and clients that work beside a test depend on time: what fails of those tests is run once more, alone, and must
# pass then. Both runs are shown: what passes only at the second one has a race, in the test or in rmqtool, and is worth
# a look. All other tests must pass at once.
CONFORMANCE := $(BIN)/python -m pytest --timeout 1200 tests/conformance -m
LIVE := $(CONFORMANCE) "conformance and not slow and live"
conformance: $(KERNEL) pure
	@$(CONFORMANCE) "conformance and not slow and not live"; settled=$$?; \
	$(LIVE) || { [ $$? = 1 ] && echo "Once more what failed:" && $(LIVE) --last-failed --last-failed-no-failures none; } && exit $$settled

# The rooms that differ without the kernel, and what they say of stores of real brokers.
pure: $(READY)
	RMQTOOL_PURE=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist loadgroup \
	  tests/unit/columns tests/unit/log tests/unit/audit tests/unit/engine tests/unit/formats tests/unit/remoting tests/golden/test_bulk.py tests/golden/test_replay.py
	RMQTOOL_PURE=1 $(BIN)/python -m tests.agreement --short

slow: $(KERNEL)
	$(BIN)/python -m pytest -m slow --timeout 3600

proof: $(KERNEL)
	$(BIN)/python -m tests.proof

bench: $(KERNEL)
	$(BIN)/python -m pytest -m bench -s --timeout 3600

docs: $(READY)
	$(BIN)/python -m tools.derive --write
	$(BIN)/python -m tests.docs

clean:
	rm -rf rmqtool/_native.abi3.so .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
