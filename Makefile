# One way to run each chore. Every target makes and uses .venv; afterwards .venv/bin/penstock works.
PYTHON ?= python3
PROCESSES ?= 4
BIN := .venv/bin
STAMP := .venv/.installed
ARCHIVE := .venv/spark.jsa
# Where Python is told to write no bytecode, each of many processes would compile every module that it imports.
COMPILE := $(BIN)/python -m compileall -q src bench/penstock_bench

.PHONY: setup compile demo test test-oldest lint types house simulate bench services docs clean lock

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml bench/pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" sh scripts/setup.sh
	touch $(STAMP)

compile: setup ## what runs in every turn of a worker, again after a change of it; until then its sources run
	-$(BIN)/python scripts/compile.py

demo: setup compile ## a burst through a pipeline that changes form by itself, on an embedded Spark
	$(BIN)/penstock demo

test: setup compile ## lint, types, and every test, those on real Spark included; PROCESSES of them side by side
	$(MAKE) --no-print-directory lint
	sh scripts/servers.sh
	-$(MAKE) --no-print-directory $(ARCHIVE)
	$(COMPILE)
	$(BIN)/pytest -n $(PROCESSES) --no-loadscope-reorder

$(ARCHIVE): $(STAMP) scripts/archive.py
	$(BIN)/python scripts/archive.py $(ARCHIVE)

test-oldest: setup ## the tests that depend on Spark, with the oldest one that is supported, in a .venv-oldest of its own
	PYTHON="$(PYTHON)" sh scripts/oldest.sh

lint: setup ## style, types, dead code, and the house rules: who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory -j 2 types house

types:
	$(BIN)/mypy

house:
	$(BIN)/vulture src examples benchmarks bench/penstock_bench
	$(BIN)/pytest tests/unit/test_house.py

simulate: setup ## a job under faults in made-up time: SEED=7 replays one seed, FIRST=0 COUNT=1000 runs a range
	$(BIN)/python -m penstock.testing.simulation \
		$(if $(SEED),--seed $(SEED),--first $(or $(FIRST),0) --count $(or $(COUNT),1000))

bench: setup compile ## the short set of measurements; writes benchmarks/results/latest.json
	$(COMPILE)
	$(BIN)/penstock bench study short --out benchmarks/results

services: setup ## real servers to try things out with: Redis, PostgreSQL, Kafka; says where they are, ends them at Ctrl-C
	sh scripts/servers.sh
	PYTHONPATH=tests $(BIN)/python -m services

docs: setup ## the documentation site, into site/
	$(BIN)/zensical build --strict

lock: ## renew requirements.lock from pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-header --group pyproject.toml:dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
