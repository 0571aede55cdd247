# make demo   the main job on the default backbone, in one screen
# make test   everything that is checked: style, types, tests, the packages, the examples
#
# Both do all their own set-up in .make/venv and need nothing but make and a Python from 3.10 to 3.13 with pip.
# The environment is kept until what it was made from changes. PYTHON=… chooses the interpreter.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
ifndef PYTHON
PYTHON := $(shell for python in python3.11 python3.12 python3.13 python3.10 python3; do \
	"$$python" -c '$(SUPPORTED)' 2>/dev/null && { echo "$$python"; break; }; done)
endif

VENV := .make/venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check
# What the environment is made from, without the settings of the tools; a change makes it anew, a moved folder too.
KEY := $(shell { echo '$(CURDIR)'; $(PYTHON) -VV; sed '/^.tool/q' pyproject.toml; cat constraints.txt; } \
	| cksum | cut -d ' ' -f 1)

# The tests take nothing from the network and from the home folder, and compile in a folder of their own.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
export OMP_NUM_THREADS ?= 1
export TORCH_EXTENSIONS_DIR := $(CURDIR)/.make/extensions
export EXCISE_TEST_EXTENSIONS_DIR := $(TORCH_EXTENSIONS_DIR)
# Suites to measure on; the tests that want them are skipped where there are none.
export EXCISE_SHARED ?= $(abspath ../shared)

.PHONY: help demo test lint types compiled check docs notebooks format clean

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

demo: $(VENV)/demo-$(KEY)
	$(RUN) examples/demo.py

test: lint types compiled check

lint: $(VENV)/dev-$(KEY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/dev-$(KEY)
	$(RUN) -m mypy

# The one job that needs a C++ compiler; everything else runs RAGatouille on plain PyTorch kernels.
compiled: $(VENV)/dev-$(KEY)
	@mkdir -p .make/extensions && find .make/extensions -name lock -delete
	@if command -v $${CXX:-c++} >/dev/null; then \
		echo "$(RUN) -m pytest -m compiler"; $(RUN) -m pytest -m compiler --timeout 900; \
	else \
		echo "No C++ compiler ($${CXX:-c++}): the compiled kernels are not tested."; \
	fi

# Also builds the sdist, the wheel from it, and runs the examples.
check: $(VENV)/dev-$(KEY)
	EXCISE_COLBERT_KERNELS=python $(RUN) -m pytest -m "not compiler"

# The documentation site, in site/.
docs: $(VENV)/dev-$(KEY)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

# Runs the notebooks again and keeps their outputs.
notebooks: $(VENV)/dev-$(KEY)
	$(RUN) examples/notebooks/execute.py

format: $(VENV)/dev-$(KEY)
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:
	rm -rf .make dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# --- set-up -------------------------------------------------------------------------------

$(VENV)/made-$(KEY):
	@test -n "$(PYTHON)" || { echo "No Python from 3.10 to 3.13 with venv and ensurepip was found; give one: make PYTHON=…" >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/demo-$(KEY): $(VENV)/made-$(KEY)
	$(PIP) install --quiet --constraint constraints.txt --editable ".[embedded]"
	@touch $@

$(VENV)/dev-$(KEY): $(VENV)/made-$(KEY)
	$(PIP) install --quiet --constraint constraints.txt --editable ".[all]" --group dev
	$(PIP) check
	@touch $@
