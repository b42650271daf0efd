# Everything runs in .venv, which the first target that needs it creates. PYTHON chooses the interpreter.
PYTHON ?= python3
ARCH ?= luna_tiny
DEMO_FLAGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test lint bench clean

demo: .venv/installed
	$(BIN)/python scripts/demo.py --arch $(ARCH) $(DEMO_FLAGS)

test: .venv/installed
	$(BIN)/python -m pytest -x -q

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed
	$(BIN)/python scripts/benchmark.py op

# fairseq-fixed is built from source on most Pythons, against torch: with torch and the build's other needs
# installed first, pip builds it with those, where its own build environment would download a second torch.
# Python 3.10's fairseq needs omegaconf 2.0.6, whose metadata pip refuses from 24.1 on.
.venv/installed: setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install --quiet 'pip<24.1; python_version < "3.11"'
	$(PIP) install --quiet -c constraints.txt setuptools wheel cython numpy torch
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[test,plot]'
	touch $@

clean:
	rm -rf .venv demo build dist *.egg-info
