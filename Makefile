# Two commands matter: `make demo` and `make test`. Both work on a bare Debian with python3.11 and venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-slow lint system install install-test bench quality clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp per set of extras, renewed when the pins or the project file change.
$(VENV)/.installed: requirements.txt pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --retries 5 -r requirements.txt
	$(BIN)/pip install --quiet --no-deps --editable '.[report]'
	touch $@

$(VENV)/.installed-test: requirements-test.txt $(VENV)/.installed
	$(BIN)/pip install --quiet --retries 5 -r requirements-test.txt
	touch $@

install: $(VENV)/.installed
install-test: $(VENV)/.installed-test

demo: $(VENV)/.installed
	@$(BIN)/explorer sweep scenarios/smoke/demo.yaml -o out/demo --jobs $(JOBS)
	@$(BIN)/explorer export out/demo -o out/demo/export

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(VENV)/.installed-test lint
	$(BIN)/python -m pytest -n $(JOBS) tests
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=120 notebooks

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(JOBS) -m slow tests

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
