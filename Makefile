# `make help` lists the targets. Everything is installed into .venv; PYTHON chooses the interpreter that makes it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test soak check format bench bench-peers install clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: install  ## set up and compare FedAvg, FedSeq and FedSeqInter on embedded data
	$(BIN)/fedseq demo

# Many tests wait for processes more than they compute: three at a time, those who wait first.
test: install  ## set up and run the whole test suite
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder tests/flower tests/engines tests

soak: install  ## the long versions of the reliability tests (about an hour)
	FEDSEQ_SOAK=1 $(BIN)/pytest -q tests/test_reliability.py tests/engines tests/flower --timeout 3600

check: install  ## lint, format and type check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install  ## format the code and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## measure a round and write docs/performance.md (FEDSEQ_DATA: a folder with CIFAR-10)
	$(BIN)/python benchmarks/round.py

bench-peers: install  ## the same round in Flower's simulation and pfl-research, in environments of their own
	$(BIN)/python benchmarks/peers/run.py

install: $(INSTALLED)  ## make the virtual environment with pinned versions

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:  ## remove the virtual environment and caches, never your runs
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache
