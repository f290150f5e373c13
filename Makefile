# `make help` lists the targets. Everything is installed into .venv; PYTHON chooses the interpreter that makes it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test soak docs check format bench results bench-peers install clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: install  ## set up and compare FedAvg, FedSeq and FedSeqInter on embedded data
	$(BIN)/fedseq demo
	@echo "to have the command fedseq in this shell: source $(BIN)/activate"

# Many tests wait for processes more than they compute: three at a time, those who wait first.
test: install  ## set up and run the whole test suite
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# A tenth of each piece, and another tenth with each seed: make soak FEDSEQ_SOAK_SHARE=0.1 FEDSEQ_SOAK_SEED=3
# One piece: make soak ONLY=damaged
soak: install  ## kills, damages, shortages and hostile folders by the hundred, with counts (half an hour)
	FEDSEQ_SOAK=1 $(BIN)/pytest -q -n 0 $(if $(ONLY),-k '$(ONLY)') --timeout 36000 \
		tests/soak tests/runs/test_reliability.py tests/engines tests/flower

# Sphinx fails on warnings, a notebook on a failing cell; then what was built is checked. Nothing is fetched.
docs: $(VENV)/.installed-docs  ## build the documentation site into build/docs, executing its notebooks
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python docs/check_site.py build/docs

$(VENV)/.installed-docs: $(INSTALLED)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	touch $@

check: install  ## lint, format and type check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install  ## format the code and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## measure a round and write docs/performance.md (FEDSEQ_DATA: a folder with CIFAR-10)
	$(BIN)/python benchmarks/round.py

results: install  ## the tables and figures of the docs that are made of the published runs in results/
	$(BIN)/python benchmarks/results.py
	$(BIN)/python benchmarks/natural.py
	$(BIN)/python benchmarks/attacks.py
	$(BIN)/python benchmarks/privacy.py page

bench-peers: install  ## the same round in Flower's simulation and pfl-research, in environments of their own
	$(BIN)/python benchmarks/peers/run.py

install: $(INSTALLED)  ## make the virtual environment with pinned versions

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps aeon  # for its data files: what it needs beside does not fit
	touch $@

clean:  ## remove the virtual environment, the built site and caches, never your runs
	rm -rf $(VENV) build/docs .pytest_cache .hypothesis .mypy_cache .ruff_cache
