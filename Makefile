# Needs python3 (3.11 or later) and make; everything else is fetched on first use into .venv, Java, PostgreSQL's server,
# Graphviz and Maven by apt, HBase and google-java-format by Maven.
BIN := .venv/bin
WORKERS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo quick test nightly servers bench lint docs format postgresql hbase venv java compiler graphviz clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: venv java ## the main job: flights into LevelDB or ARGS="--url URL", services and Spark on them, a chart
	$(BIN)/python examples/demo.py $(ARGS)

quick: venv ## each rule on memory and LevelDB in 45 seconds: no Java, no server, no C compiler; ARGS=hbase: on that store alone
	@$(if $(filter command,$(firstword $(origin WORKERS))),WORKERS=$(WORKERS)) tools/quick $(ARGS)

test: venv java compiler graphviz servers ## every test; narrow it with ARGS="tests/test_docs.py -k readme", choose a PYTHON=/path/to/python3.13
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

nightly: venv java compiler graphviz servers ## the long versions of the tests, an hour or more each; ARGS=--plan lists them, ARGS="fuzz tpch" runs these
	@WORKERS=$(WORKERS) $(BIN)/python tools/nightly.py $(ARGS)

servers:
	@tools/postgresql server
	@tools/postgresql pooler
	@tools/hbase

compiler:
	@command -v cc >/dev/null || tools/apt-install "A C compiler" build-essential

graphviz:
	@command -v dot >/dev/null || tools/apt-install "Graphviz, which draws pipelines" graphviz

bench: venv java ## measure each speed promise against its raw floor
	@tools/postgresql server
	@tools/postgresql jdbc
	@tools/hbase
	$(BIN)/python benchmarks/run.py $(ARGS)

lint: venv java ## style, types, the arrows between the folders, and whether the Java compiles and is formatted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	tools/types
	tools/arrows
	$(BIN)/python tools/compile_java.py
	$(BIN)/python -m tools.format_java --check

docs: venv ## the documentation site in build/site, with warnings and broken links as errors
	$(BIN)/sphinx-build -W --keep-going -q -c docs . build/site
	@echo build/site/index.html

format: venv java ## let ruff and google-java-format correct what they can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/python -m tools.format_java

postgresql: venv ## a PostgreSQL server to try things on, until Ctrl-C
	@tools/postgresql server
	@$(BIN)/python -m tests.postgresql.support.server

hbase: venv java ## an HBase server with its Thrift gateway to try things on, until Ctrl-C
	@tools/hbase
	@$(BIN)/python -m tests.hbase.support.server

venv: ## .venv with structable, editable, and the pinned versions of constraints.txt
	@tools/setup

java: ## make sure that Spark finds Java 17 or later
	@tools/java

clean: ## remove .venv, caches and build output
	rm -rf .venv .venv.lock .packages .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
