# `make help` lists the targets. Each installs what it needs into .venv, and nothing else; PYTHON chooses the interpreter.
# On Linux, CPU=1 takes PyTorch's build without CUDA, which is some 3 GB smaller: make demo CPU=1
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Python compiles what it imports by itself; pip would compile everything, which takes longer than the demo.
PIP := $(BIN)/python -m pip install -q --no-compile -c constraints.txt
TORCH := torch $(if $(CPU),--index-url https://download.pytorch.org/whl/cpu)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all soak docs check format bench reference results bench-peers install clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: $(VENV)/.core  ## set up and compare FedAvg, FedSeq and FedSeqInter on embedded data
	$(BIN)/fedseq demo
	@echo "to have the command fedseq in this shell: source $(BIN)/activate"

test: $(VENV)/.dev  ## set up and run the quick tests, in minutes; tests of extras that are missing are skipped
	$(BIN)/pytest -q -n 2 --dist worksteal

test-all: install  ## the slow tests, those with servers, clusters, a browser and many kills: a quarter of an hour
	$(BIN)/pytest -q -n 3 --dist loadgroup -m slow

# A tenth of each piece, and another tenth with each seed: make soak FEDSEQ_SOAK_SHARE=0.1 FEDSEQ_SOAK_SEED=3
# One piece: make soak ONLY=damaged
soak: install  ## kills, damages, shortages and hostile folders by the hundred, with counts (half an hour)
	FEDSEQ_SOAK=1 $(BIN)/pytest -q -n 0 -m "" $(if $(ONLY),-k '$(ONLY)') --timeout 36000 \
		tests/soak tests/runs/test_reliability.py tests/engines tests/flower

# Sphinx fails on warnings, a notebook on a failing cell; then what was built is checked. Nothing is fetched.
reference: install  ## docs/options.md and docs/api.md, made of the code
	$(BIN)/python docs/reference.py

docs: $(VENV)/.docs  ## build the documentation site into build/docs, executing its notebooks
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python docs/check_site.py build/docs

check: install  ## lint, format and type check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## format the code and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.core  ## measure a round and write docs/performance.md (FEDSEQ_DATA: a folder with CIFAR-10)
	$(BIN)/python benchmarks/round.py

results: $(VENV)/.dev  ## the tables and figures of the docs that are made of the published runs in results/
	$(BIN)/python benchmarks/results.py
	$(BIN)/python benchmarks/natural.py
	$(BIN)/python benchmarks/attacks.py
	$(BIN)/python benchmarks/privacy.py page

bench-peers: $(VENV)/.core  ## the same round in Flower's simulation and pfl-research, in environments of their own
	$(BIN)/python benchmarks/peers/run.py

install: $(VENV)/.all  ## make the virtual environment with every extra, in pinned versions

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps aeon  # for its data files: its own requirements contradict ours
	touch $@

$(VENV)/.all: $(VENV)/.dev
	$(PIP) -e '.[all]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) -e '.[docs]'
	touch $@

clean:  ## remove the virtual environment, the built site and caches, never your runs
	rm -rf $(VENV) build/docs .pytest_cache .hypothesis .mypy_cache .ruff_cache
