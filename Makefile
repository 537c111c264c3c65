# `make run` starts a server; `make test` runs all tests. Both set up .venv first, with the packages and hashes of a
# lock file: requirements.lock for the server alone, requirements-dev.lock for everything else.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SERVE := $(VENV)/.serve.ready
DEVELOP := $(VENV)/.develop.ready
PROJECTS := pyproject.toml packages/homing-client/pyproject.toml
PROGRAMS := chromium pgbouncer libfaketime nginx tinyproxy  # Some tests use these; PyPI does not have them.
export PYTHON
# Tests start hundreds of processes: each would compile all modules again, for half a second.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup run test lint unit long bench profile chaos security mutation simulate fleet rolling pythons pictures languages release deploy-check docs lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo
	@echo "ARGS='...' passes options on, as in: make run ARGS=--allow-loopback"
	@echo "PYTHON=/path/to/python chooses the Python for .venv; the default is the newest one of 3.11 to 3.13."

# Runs where .venv is missing, and where the Python that it was made with is gone.
$(BIN)/python:
	@python=$$(tools/find_python.sh) && echo "Making $(VENV) with $$($$python --version) ($$python)" \
	&& $$python -m venv --clear $(VENV)

$(SERVE): requirements.lock $(PROJECTS) | $(BIN)/python
	@echo "Installing the packages that the server needs (requirements.lock)"
	@$(PIP) install --require-hashes --no-deps --requirement requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable packages/homing-client --editable .
	@$(PIP) uninstall --quiet --yes setuptools  # It was only needed for the line above.
	@touch $@

$(DEVELOP): requirements-dev.lock $(PROJECTS) | $(BIN)/python
	@echo "Installing the packages for tests, benchmarks and development (requirements-dev.lock)"
	@$(PIP) install --require-hashes --no-deps --requirement requirements-dev.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable packages/homing-client --editable .
	@touch $(SERVE) $@

run: $(SERVE)  ## start a server with SQLite at http://127.0.0.1:8700
	$(BIN)/homing serve $(ARGS)

test: setup  ## run all checks and tests, as CI does
	@$(MAKE) --no-print-directory --jobs 2 lint unit

setup: $(DEVELOP)  ## make .venv for development, with the server, the tests and the benchmarks

lint: setup  ## check style, types and the order of imports between packages
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/ruff check src tests bench tools
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup  ## run the tests without the checks
	@tools/install_programs.sh $(PROGRAMS)
	$(BIN)/pytest -n 4 --dist worksteal

long: setup  ## run the tests that `make test` leaves out because they take long
	@tools/install_programs.sh $(PROGRAMS) patroni
	$(BIN)/pytest -n 4 --dist worksteal -m long

bench: setup  ## measure throughput and latency, about a quarter of an hour; ARGS=--quick takes two minutes
	$(BIN)/python -m bench.run $(ARGS)

profile: setup  ## show which functions use the CPU in parts c and d of the benchmark (ARGS="--only n": also n)
	$(BIN)/python -m bench.profiling $(ARGS)

chaos: setup  ## kill servers, cut networks, fill disks, and check that nothing is lost; ARGS=--quick takes a few minutes
	PYTHONPATH=src:tests $(BIN)/python -m chaos.run $(ARGS)

security: setup  ## test with hostile receivers, callers and input; ARGS=--quick takes a few minutes
	PYTHONPATH=src:tests $(BIN)/python -m security.run $(ARGS)

mutation: setup  ## change the code of policy and settle in small ways, and check that a test fails each time
	PYTHONPATH=src:tests $(BIN)/python -m chaos.mutation $(ARGS)

simulate: setup  ## run 1,000 seeds of simulated faults, then find every planted bug; about an hour on two cores
	PYTHONPATH=src:tests $(BIN)/python -m simulation.run $(ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m simulation.find_planted
	PYTHONPATH=src:tests $(BIN)/python -m simulation.failovers

fleet: setup  ## run many processes on one PostgreSQL, kill and stop them; ARGS=--quick takes a minute
	PYTHONPATH=src:tests $(BIN)/python -m fleet.run $(ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m fleet.run --failover --rounds 10
	PYTHONPATH=src:tests $(BIN)/python -m fleet.run --controls
	PYTHONPATH=src:tests $(BIN)/python -m fleet.run --measure

pythons: setup  ## install and test Homing on every Python of this machine; ARGS=--tests leaves the tests out
	PYTHONPATH=src:tests $(BIN)/python -m pythons.run $(ARGS)

pictures: setup  ## take the pictures of docs/images: the demo and the dashboard, about five minutes
	@tools/install_programs.sh chromium
	PYTHONPATH=src:tests $(BIN)/python tools/record_demo.py
	PYTHONPATH=src:tests $(BIN)/python tools/take_screenshots.py

languages: setup  ## add new texts to the files of translations, and count those without a translation
	$(BIN)/python tools/collect_texts.py $(ARGS)

release: setup  ## build both wheels and sdists, an SBOM and checksums of the latest commit, twice, into dist
	$(BIN)/python tools/release.py dist

deploy-check: setup  ## check deploy/ with Prometheus, Helm, Podman and systemd, each where it is installed; about 20 minutes
	$(BIN)/pytest -v -s -rs tests/deploy/test_*.py tests/deploy/check_*.py $(ARGS)

rolling: setup  ## run the version before the newest migration and this one together on one PostgreSQL; two minutes
	PYTHONPATH=src:tests $(BIN)/python -m fleet.rolling $(ARGS)

docs: setup  ## generate the reference pages in docs/reference, and the blocking client
	$(BIN)/python tools/generate_sync_client.py
	$(BIN)/python tools/generate_client_subscription.py
	$(BIN)/homing reference docs/reference

lock: $(BIN)/python  ## renew both lock files with the newest versions that pyproject.toml allows
	@tools/lock.sh $(BIN)/python $(ARGS)

clean:  ## remove .venv
	rm -rf $(VENV)
