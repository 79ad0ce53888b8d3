# Each target sets itself up in .venv and needs nothing but Python 3.11 to 3.14 and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml README.md $(wildcard fastfedrec/*.py fastfedrec/*/*.py _kernels/*.py* _kernels/*.pxd _kernels/*.h fastfedrec/*/*.json)

.PHONY: demo test test-fast docs bench lint clean

# The main job: private federated training on generated data, compared, accounted for and plotted.
demo: $(VENV)/.installed-cli
	$(BIN)/fastfedrec demo --out demo-output

# All tests, against the installed package (`pytest`, never `python -m pytest`: the checkout would shadow it).
test: $(VENV)/.installed-test
	$(BIN)/pytest -n 2
	$(BIN)/pytest -n 2 -m slow
	$(BIN)/pytest --doctest-modules --pyargs fastfedrec -p no:cacheprovider
	$(BIN)/pytest --doctest-glob='*.md' README.md docs

test-fast: $(VENV)/.installed-test
	$(BIN)/pytest -n 2

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/.installed-bench
	cd benches && ../$(BIN)/asv machine --yes && ../$(BIN)/asv run --quick --show-stderr --python=same

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint _kernels  # it runs pycodestyle by name
	$(BIN)/mypy

# The extra is the part of the stamp's name after "installed-"; a changed source installs again.
$(VENV)/.installed-%: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check '.[$*]'
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' \
		|| { echo "fastfedrec needs Python 3.11 to 3.14: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist *.egg-info demo-output docs/_build docs/reference/generated
