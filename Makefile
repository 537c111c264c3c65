# Everything a newcomer needs: `make run` serves, `make test` proves. Both set up .venv by themselves.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help setup run test lint unit chromium pgbouncer libfaketime bench profile chaos security mutation simulate fleet docs clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	touch $(STAMP)

setup: $(STAMP)  ## make .venv with all that is needed

run: setup  ## serve on SQLite at http://127.0.0.1:8700
	$(BIN)/homing serve $(ARGS)

lint: setup  ## style, types, layers
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup chromium pgbouncer libfaketime
	$(BIN)/pytest -n 3 --dist worksteal

# The dashboard is looked at in a real browser, where the machine lets us have one.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	|| { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get install -qq -y chromium >/dev/null 2>&1; } \
	|| echo "NO CHROMIUM: the browser tests will be skipped"

# So is a real PgBouncer put in front of a fleet.
pgbouncer:
	@command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer \
	|| { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get install -qq -y pgbouncer >/dev/null 2>&1; } \
	|| echo "NO PGBOUNCER: the tests behind a pooler will be skipped"

# And the wall clock of a real server is stepped while it runs.
libfaketime:
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 \
	|| { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get install -qq -y libfaketime >/dev/null 2>&1; } \
	|| echo "NO LIBFAKETIME: the tests with a stepped clock will be skipped"

test: lint unit  ## all of it, as CI runs it

bench: setup  ## what it can carry, in about ten minutes; ARGS=--quick in one
	$(BIN)/python -m bench.run $(ARGS)

profile: setup  ## where the CPU goes in parts c and d of the bench
	$(BIN)/python -m bench.profiling $(ARGS)

chaos: setup  ## killed, cut off, filled up: every fault for real; ARGS=--quick in a few minutes
	PYTHONPATH=src:tests $(BIN)/python -m chaos.run $(ARGS)

security: setup  ## hostile receivers, doors and input in their long forms; ARGS=--quick in a few minutes
	PYTHONPATH=src:tests $(BIN)/python -m security.run $(ARGS)

mutation: setup  ## does a test fail for every small change of policy and settle?
	PYTHONPATH=src:tests $(BIN)/python -m chaos.mutation $(ARGS)

simulate: setup  ## 1,000 seeds of faults, then every planted bug; about an hour on two cores
	$(BIN)/python -m homing.sim.run $(ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m sim.find_planted

fleet: setup  ## many processes on one PostgreSQL, killed and stopped; ARGS=--quick in a minute
	PYTHONPATH=src:tests $(BIN)/python -m fleet.run $(ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m fleet.run --controls
	PYTHONPATH=src:tests $(BIN)/python -m fleet.run --measure

docs: setup  ## write the reference pages that are made from the code
	$(BIN)/homing reference docs/reference

clean:  ## remove what was set up
	rm -rf $(VENV)
