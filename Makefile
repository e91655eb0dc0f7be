# Each target sets up what it needs, once. `make quickstart` and `make test` are all a newcomer has to know.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c '' 2>/dev/null && command -v $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := local,models,math,tasks,orchestration,dashboard,studies,quantized,verl,dev$(ALSO)

# Sources are compiled once, not in each of the many processes that a sweep and its tests start.
unexport PYTHONDONTWRITEBYTECODE

WORKERS ?= 3
TESTS = $(BIN)/python -m pytest --numprocesses $(WORKERS)

# What a processor without AVX-512 computes: the libraries below PyTorch are told to use AVX2 only.
test-avx2: WORKERS = 0
test-avx2: export ATEN_CPU_CAPABILITY = avx2
test-avx2: export ONEDNN_MAX_CPU_ISA = AVX2
test-avx2: export MKL_ENABLE_INSTRUCTIONS = AVX2

.PHONY: help setup quickstart check unit component system test test-all test-avx2 mutants verl-main lint lock sbom site site-setup \
	dashboard serve clean
help:
	@echo "make quickstart   set up, then train and compare seven algorithms on this machine (3 to 8 minutes on two cores)"
	@echo "make check        style, types and the unit tests: before each commit"
	@echo "make test         set up, then run the unit and the component tests: 7 to 15 minutes on two cores"
	@echo "make test-all     set up, then run every test, those of servers, browsers, Ray and jobs on verl, too"
	@echo "make test-avx2    run the tests that compute as on a processor without AVX-512"
	@echo "make mutants      plant 300 small faults in the core and count those that the tests see"
	@echo "make verl-main    list what another version of verl has moved, e.g. VERL=verl==0.9.0 or VERL=git+https://..."
	@echo "make dashboard    set up, then open the comparison dashboard on http://127.0.0.1:8501"
	@echo "make serve        set up, then serve the Prefect UI, its worker and the dashboard on loopback"
	@echo "make lock         write requirements*.lock: the releases of constraints.txt with their hashes"
	@echo "make sbom         write sbom.json: what is installed, as a CycloneDX list with licences"
	@echo "make lint         ruff: style, imports, formatting; mypy: types"
	@echo "make site         build the documentation as a site, into site/; a broken link is an error"
	@echo "make setup        only set up .venv"

setup: $(STAMP)

$(STAMP): pyproject.toml verl-cpu/pyproject.toml constraints.txt .ci/install.py
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else f"Python 3.11, 3.12 or 3.13 is needed; {sys.executable} is {v[0]}.{v[1]}. Try: make PYTHON=/path/to/python3.11")'
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): about a minute, once."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python .ci/install.py -e '.[$(EXTRAS)]' -e ./verl-cpu
	@touch $(STAMP)

# The audit computes beside the sweep, whose first minute is one process, and ends with it on Ctrl-C.
quickstart: $(STAMP)
	@nice -n 10 $(BIN)/rpg audit > /dev/null & audit=$$!; trap "kill $$audit 2>/dev/null" INT TERM; \
		$(BIN)/rpg sweep quickstart && wait $$audit

# mkdocs is no part of the set-up, unless ALSO=,docs asks for it there: only the site needs it.
site-setup: $(STAMP)
	@$(BIN)/python -c 'import mkdocs, mkdocstrings' 2>/dev/null || $(BIN)/python .ci/install.py -e '.[docs]'

site: site-setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

check: lint unit

# The tiers of tests: tests/tiers.py.
unit component system: $(STAMP)
	@$(TESTS) -m $@ $(ARGS)

test: $(STAMP)
	@$(TESTS) -m 'unit or component' $(ARGS)

# Some of the system tests wait more than they compute.
system test-all: WORKERS = 5
test-all: $(STAMP)
	@$(TESTS) $(ARGS)

# Those that compare what PyTorch computes with what arithmetic says: about 90 processor seconds.
COMPUTING = losses auditing/test_diagnosis.py $(addprefix models/test_,lean.py decoding.py lora.py truncated_sampling.py) \
	$(addprefix local/test_,trainer.py master_weights.py fidelity.py micro_batches.py)

test-avx2: $(STAMP)
	@$(TESTS) -m 'not system' $(addprefix tests/,$(COMPUTING)) $(ARGS)

mutants: $(STAMP)
	@$(BIN)/python -m benchmarks.mutants $(ARGS)

# Another verl (the newest that PyPI has, VERL=verl==0.9.0, VERL=git+https://...) over the packages of .venv.
VERL ?= verl
MAIN := .venv-verl-main
PURELIB := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
verl-main: $(STAMP)
	@$(BIN)/python -m venv --clear $(MAIN)
	@echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" > "$$($(MAIN)/bin/python $(PURELIB))/venv.pth"
	@$(MAIN)/bin/python -m pip install -qq --pre --no-deps --ignore-installed "$(VERL)"
	@$(MAIN)/bin/python -m benchmarks.verl_internals; moved=$$?; \
		$(MAIN)/bin/python -m pytest -q --tb=line tests/verl/test_launch_overrides.py -m 'not system' && exit $$moved

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

lock: $(STAMP)
	@$(BIN)/python .ci/lock.py

sbom: $(STAMP)
	@$(BIN)/python .ci/sbom.py sbom.json

serve: $(STAMP)
	@$(BIN)/rpg serve

dashboard: $(STAMP)
	@$(BIN)/rpg dashboard

clean:
	rm -rf $(VENV) $(MAIN) *.egg-info verl-cpu/*.egg-info
