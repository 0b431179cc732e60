# `make demo` trains on the embedded graph, `make test` checks everything but the page, `make test-browser` that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := runs/demo

.PHONY: demo test test-browser chromium lint clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The stamps say which set of packages the environment holds; a changed pin or extra installs again.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[all,dev,peers]"
	touch $@ $(VENV)/.core

$(VENV)/.browser: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[serve,dev,browser]"
	touch $@ $(VENV)/.core

demo: $(VENV)/.core
	rm -rf $(DEMO)
	$(BIN)/compgcn train world --run-dir $(DEMO)
	$(BIN)/compgcn predict $(DEMO) --head France --relation borders --top 5 --new

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2

# Debian's package; a browser that lies elsewhere is named by CHROMIUM.
chromium:
	@if [ -n "$$CHROMIUM" ] || command -v chromium > /dev/null || command -v chromium-browser > /dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
	  && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null; then exit 0; fi; \
	echo "the browser tests need Chromium, and it could not be installed here: install the package chromium as root, or name a browser by CHROMIUM=/path" >&2; \
	exit 1

test-browser: $(VENV)/.browser chromium
	COMPGCN_BROWSER=1 $(BIN)/python -m pytest tests/browser

clean:
	rm -rf $(VENV) $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
