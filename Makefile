# make lab         a .venv of its own, then JupyterLab at the first notebook
# make test        for every commit: ruff, mypy, and the tests that are not marked slow; warnings are errors
# make test-all    make test, then the tests marked slow: test-rest
# make test-fuzz   the fuzz loops, with their figures
# make test-gpu    what holds on a real card, and a report: artifacts/gpu/report.md; without a card on virtual ones that do not say so
# make coverage    the suite of `make test-all`, and the lines that it leaves out: artifacts/coverage/index.html
# make check       ruff (rules and format) and mypy; where node is, check-page too
# make check-page  TypeScript on the page's modules
# make pictures    the panels of the notebooks for README and docs: docs/pictures
# make shots       make pictures, and screenshots of the panel in all its states: artifacts/
# make docs        the documentation as a site that needs no network: artifacts/docs/built/index.html
# make bench     what everything costs: benchmarks/results/performance.md; BENCH=--quick takes fewer rounds
# make words       new messages join the catalogues of translations, which are compiled
# make notebooks   run the notebooks, and keep what they show if anything but times has changed
#
# make lab PORT=8888 BROWSER=no    on a server
# make lab PYTHON=python3.12       with another Python (3.11 or newer)
# make test WORKERS=4              tests in so many processes; PYTEST_ARGS="tests/capture -x" runs a part
# noxfile.py has what needs many environments: the wheel with each Python and each torch.

NOTEBOOK := notebooks/01-first-look.ipynb
BROWSER ?= yes
PORT ?=
PYTEST_ARGS ?=
WORKERS ?= 2

# The first Python that is new enough; `python3` wins, because torch may be installed in it.
ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach each,python3 python3.14 python3.13 python3.12 python3.11 python,\
	$(shell $(each) -c '$(ENOUGH)' >/dev/null 2>&1 && echo $(each))) python3)

# Tests start hundreds of processes: each would compile devwidget again, and would start threads that wait by spinning.
unexport PYTHONDONTWRITEBYTECODE
tests test-rest test-fuzz coverage: export OMP_NUM_THREADS := 1

IN_VENV := .venv/bin/python
PYTEST = $(IN_VENV) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

TYPESCRIPT = npm --prefix tests/page install --silent --no-audit --no-fund --prefer-offline --fetch-retries=0
CHECK_PAGE = npm --prefix tests/page run --silent check

LAB_OPTIONS := --LabApp.default_url=/lab/tree/$(NOTEBOOK) --ServerApp.root_dir=.
LAB_OPTIONS += $(if $(PORT),--port=$(PORT))
LAB_OPTIONS += $(if $(filter no,$(BROWSER)),--no-browser)
LAB_OPTIONS += $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: lab test tests test-all test-rest test-fuzz test-gpu coverage shots pictures docs bench notebooks words set-up set-up-test check check-page

lab: set-up
	$(IN_VENV) -m jupyterlab $(LAB_OPTIONS)

# At once, because mypy keeps one core busy and npm none.
test: set-up-test
	@$(MAKE) --no-print-directory -j2 check tests

tests: set-up-test
	$(PYTEST) $(PYTEST_ARGS)

test-all: test
	@$(MAKE) --no-print-directory test-rest

test-rest: set-up-test
	$(PYTEST) -m "slow and not fuzz" $(PYTEST_ARGS)

coverage: set-up-test
	$(PYTEST) -m "not fuzz" --cov --cov-report=term --cov-report=html $(PYTEST_ARGS)

test-fuzz: set-up-test
	$(IN_VENV) -m pytest -m fuzz -n $(WORKERS) --timeout 900 -o faulthandler_timeout=3700 -rP $(PYTEST_ARGS)

test-gpu: set-up-test
	rm -rf artifacts/gpu
	@$(PYTEST) -m "fuzz or not fuzz" tests/gpu --timeout 900 $(PYTEST_ARGS); found=$$?; \
	$(IN_VENV) -m tests.gpu.costs; $(IN_VENV) -m tests.gpu.report; exit $$found

shots: pictures
	PICTURES=yes $(IN_VENV) -m pytest -m "not fuzz" tests/browser -k "screenshots or pictures or parallel_flow"

pictures: set-up-test
	$(IN_VENV) docs/take_pictures.py

docs: set-up-test
	$(IN_VENV) docs/build_findings.py
	$(IN_VENV) docs/build_reference.py
	$(IN_VENV) docs/build_layers.py
	$(IN_VENV) docs/build_site.py

bench: set-up-test
	@$(PYTHON) .ci/set_up.py bench || echo "peers that could not be installed are left out"
	$(IN_VENV) benchmarks/run_all.py $(BENCH)

words: set-up-test
	$(IN_VENV) -m tests.language.translate

notebooks: set-up-test
	$(IN_VENV) notebooks/refresh.py

check: set-up-test
	$(IN_VENV) -m ruff check .
	$(IN_VENV) -m ruff format --check .
	$(IN_VENV) -m mypy
	@if $(TYPESCRIPT) 2>/dev/null; then $(CHECK_PAGE); else echo "no node here, or no way to TypeScript: make check-page was left out"; fi

check-page:
	$(TYPESCRIPT)
	$(CHECK_PAGE)

set-up:
	@$(PYTHON) .ci/set_up.py lab

set-up-test:
	@$(PYTHON) .ci/set_up.py test
