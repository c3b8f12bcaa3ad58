# Every target makes the virtual environment first, if it is missing or older than the lock.
PROFILE ?= laptop
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LAB_OPTIONS ?=
WORKERS ?= 2
MUTANTS_OPTIONS ?=
# threads that spin long while they wait are slow beside other work; your own setting wins
ifndef OMP_WAIT_POLICY
export GOMP_SPINCOUNT ?= 10000
endif
# HASHES=all installs the lock's very files, by SHA-256; HASHES=cpu takes torch's CPU build first
PIP_HASHED := $(BIN)/python -m pip install --quiet --no-deps --require-hashes
ifeq ($(HASHES),)
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
else
INSTALL = $(if $(filter cpu,$(HASHES)),$(PIP_HASHED) -r hashes-cpu.txt && )$(PIP_HASHED) -r hashes.txt \
	&& $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
endif
LAB_SETTINGS := {"@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"python": "Jupytext Notebook"}}}

.PHONY: book test check lab pages journeys benchmarks mutants audit lint clean

book: $(READY)  ## execute the chapters and render book/_build/html/index.html; PROFILE=smoke is the fast variant, FRESH=1 reuses nothing, JOBS=1 takes one chapter at a time
	$(BIN)/cde book --profile $(PROFILE) $(if $(FRESH),--fresh) $(if $(JOBS),--jobs $(JOBS))
	@echo 'the command is $(BIN)/cde; after "source $(BIN)/activate" it is cde'

test: $(READY)  ## linters, types, the laws of the domain and the promises to users: some minutes
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

check: $(READY)  ## everything: also whole books, kills, installations, every example, more draws of each property
	$(BIN)/ruff check .
	$(BIN)/mypy
	CDE_FULL=1 $(BIN)/python -m pytest -n $(WORKERS)

lab: $(READY)  ## JupyterLab; a chapter's .py opens as a notebook, paired with an .ipynb that git ignores
	mkdir -p $(VENV)/share/jupyter/lab/settings
	printf '%s' '$(LAB_SETTINGS)' > $(VENV)/share/jupyter/lab/settings/overrides.json
	$(BIN)/jupyter lab notebooks $(LAB_OPTIONS)

pages: $(READY)  ## open every built page in headless Chromium: console errors, width, dark mode
	$(BIN)/python tests/pages/in_chromium.py

journeys: $(READY)  ## three users' journeys, after the smoke book
	for user in reader experimenter engineer; do $(BIN)/python tests/journeys/$$user.py || exit 1; done

benchmarks: $(READY)  ## what it costs, as ratios against named peers and limits: book/cost/<class of processor>.json
	$(BIN)/python benchmarks/cost.py $(BENCHMARKS_OPTIONS)

audit: $(READY)  ## hashes.txt anew from the lock; book/_build/materials.cdx.json; known vulnerabilities, where a registry tells them
	test -x .venv-audit/bin/uv || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet uv==0.13.9 cyclonedx-bom==7.5.0 pip-audit==2.10.1
	.venv-audit/bin/uv pip compile constraints.txt --quiet --no-deps --generate-hashes --no-header --no-annotate -o hashes.txt
	mkdir -p book/_build
	.venv-audit/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml -o book/_build/materials.cdx.json $(BIN)/python
	.venv-audit/bin/pip-audit --requirement hashes.txt --no-deps --disable-pip --progress-spinner off

mutants: $(READY)  ## plant faults in copies of the package, one at a time; every one must be caught
	$(BIN)/python tests/reliability/mutants.py $(MUTANTS_OPTIONS)

clean:  ## remove what the targets above made (the cache of embeddings and of trained models stays: `cde doctor` says where)
	rm -rf $(VENV) .venv-audit book/_build book/executed book/generated book/reruns
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cde needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": make PYTHON=python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	rm -rf *.egg-info  # of an earlier installation, whose entry points would be found first
	$(INSTALL)
	touch $@
