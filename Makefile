# Two commands: `make demo` trains on the embedded graph, `make test` checks everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := runs/demo

.PHONY: demo test lint clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The stamps say which set of packages the environment holds; a changed pin or extra installs again.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[all,dev,peers]"
	touch $@ $(VENV)/.core

demo: $(VENV)/.core
	rm -rf $(DEMO)
	$(BIN)/compgcn train world --run-dir $(DEMO)
	$(BIN)/compgcn predict $(DEMO) --head France --relation borders --top 5

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

clean:
	rm -rf $(VENV) $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
