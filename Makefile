# Everything runs in .venv, which the first target that needs it makes. A second run finds it there.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
PY := $(BIN)/python
ROOTS := cim sidecar spark operator cli plugin rules
# Test processes beside each other. Those that start a JVM always run one after the other.
JOBS ?= 2
# Those with a cluster wait most of the time.
CLUSTER_JOBS ?= 3
# Of so many rows one is tried, another one with each commit.
ROWS_SHARE ?= 1
# Options of every run of tests.
BUT :=

.PHONY: help
help: ## Show this help
	@echo "Pillion: needs Python >= 3.11 (with venv), a JDK >= 17 and make; the rest it sets up itself."
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.complete: tools/set-up pyproject.toml requirements/constraints.txt
	@tools/set-up

# Half of all that is installed. Targets that neither run nor type-check it do without.
.venv/.spark: .venv/.complete
	@tools/set-up spark

.PHONY: set-up
set-up: .venv/.complete ## Make .venv with all that the other targets need, but for Spark

.PHONY: spark
spark: .venv/.spark ## Install Spark into it: what lint, tests and demo need besides

.PHONY: java
java:
	@tools/check-java

.PHONY: demo
demo: java .venv/.spark ## From a Spark job over real weather records to two real listeners, through a failure
	@$(PY) examples/demo/run.py

.PHONY: handlers-demo
handlers-demo: .venv/.complete ## A destination of every protocol; each receiver is killed and revived; one table
	@$(PY) examples/handlers/run.py

.PHONY: test
test: java lint rows unit integration cluster ## Everything below that can fail, but for the benchmarks
# Rows first: what they have found green on this very tree is not run a second time.
test: BUT := --but-green

.PHONY: lint
lint: .venv/.spark ## ruff (rules and format), mypy --strict, import contract
	@echo "== lint"
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary $(ROOTS) testbed tools tests/support tests/cluster tests/benchmarks \
	  tests/conftest.py images/*.py examples/handlers tests/images/pywbem-listener/listener.py
	@$(BIN)/lint-imports --no-logo --cache-dir .cache/import-linter | tail -n 3

.PHONY: quick
quick: lint ## Lint, and the unit tests that the change since BASE (default: main) can break
	@echo "== unit tests that the change can break"
	@tests=$$($(PY) tools/affected.py $(or $(BASE),main)); [ -z "$$tests" ] || \
	  $(PY) -m pytest -q -n $(JOBS) -m "not spark and not slow" $$tests

.PHONY: unit
unit: .venv/.spark ## Tests of single packages, in memory
	@echo "== unit tests"
	@$(PY) -m pytest tests/unit -q -n $(JOBS) -m "not spark and not slow" $(BUT)

.PHONY: integration
integration: java .venv/.spark ## Slow unit tests, tests over real sockets and processes, and with Spark
	@echo "== slow unit tests"
	@$(PY) -m pytest tests/unit -q -n $(JOBS) -m slow $(BUT)
	@echo "== integration tests"
	@$(PY) -m pytest tests/integration -q -n $(JOBS) -m "not spark and not cluster" \
	  --ignore tests/integration/receivers $(BUT)
	@echo "== tests with Spark"
	@$(PY) -m pytest tests -q -m spark --ignore tests/integration/spark_versions $(BUT)

.PHONY: receivers
receivers: java .venv/.spark ## Tests of handlers with receivers of other projects (the first run builds four: 8 minutes)
	@$(PY) -m pillion_testbed receivers
	@for program in chromedriver chromium mosquitto rsyslogd smtp-sink snmptrapd tinyproxy; do \
	  PATH=$$PATH:/usr/sbin command -v $$program >/dev/null || echo "not tried: no $$program; Debian has it"; done
	@echo "== tests with receivers"
	@$(PY) -m pytest tests/integration/receivers -q -n $(JOBS)

.PHONY: spark-matrix
spark-matrix: java .venv/.spark ## Test other versions of Spark, Spark Connect and pipelines (CACHED=1: fetch none, skip)
	@[ -n "$(CACHED)" ] || $(PY) -m pillion_testbed spark-versions
	@echo "== tests with versions of Spark"
	@$(PY) -m pytest tests/integration/spark_versions -q

# Some 7 minutes the first time on four fast cores, up to an hour on a slow machine; nothing after.
.PHONY: cluster-binaries
cluster-binaries: .venv/.complete
	@$(PY) -m pillion_testbed build

.PHONY: cluster
cluster: cluster-binaries ## Tests on a real Kubernetes API server (the first run builds it: 7 minutes and more)
	@echo "== tests with a cluster"
	@$(PY) -m pytest tests/integration/cluster -q -n $(CLUSTER_JOBS) $(BUT)

.PHONY: cluster-up
cluster-up: .venv/.complete ## Start a Kubernetes control plane with our CRDs in the background
	@$(PY) -m pillion_testbed up

.PHONY: cluster-down
cluster-down: .venv/.complete ## End it, and remove its data
	@$(PY) -m pillion_testbed down

# Some 15 minutes the first time on a machine; after it, of images what has changed.
.PHONY: node-binaries
node-binaries: .venv/.complete
	@tools/check-node
	@[ -n "$${PILLION_SKIP_NODE:-}" ] || $(PY) -m pillion_testbed build-node

# One after the other, and on one cluster: they cut nodes off.
.PHONY: e2e
e2e: node-binaries ## The whole product on a real node: root on Linux (the first run builds it: 15 minutes)
	@echo "== tests on a node"
	@$(PY) -m pytest tests/e2e -q --durations 25

.PHONY: node-up
node-up: .venv/.complete ## Start a Kubernetes with a node in the background
	@$(PY) -m pillion_testbed node-up

.PHONY: node-down
node-down: .venv/.complete ## End it, and remove its data
	@$(PY) -m pillion_testbed node-down

.PHONY: rows
rows: java .venv/.spark cluster-binaries ## Break each worked requirement's line of source and see its tests turn red
	@echo "== rows"
	@$(PY) tools/rows.py --jobs $(JOBS) --share $(ROWS_SHARE)

.PHONY: soak
soak: .venv/.complete ## Kill points by the million, an hour of chaos, 500 rounds of harm (all end sooner by PILLION_… variables)
	@PILLION_KILL_POINTS=$${PILLION_KILL_POINTS:-1000000} PILLION_CHAOS_ROUNDS=$${PILLION_CHAOS_ROUNDS:-1000} \
	  PILLION_SOAK_ROUNDS=$${PILLION_SOAK_ROUNDS:-504} \
	  $(PY) -m pytest -q -n $(JOBS) tests/unit/journal/test_kill_points.py tests/integration/chaos

.PHONY: images
images: .venv/.complete ## Build all images on a local base, into the cache (as root; minutes the first time)
	@$(PY) -m pillion_testbed.images

.PHONY: bench
bench: java .venv/.spark cluster-binaries ## Measure against nginx and wrk (Debian packages nginx-light, wrk)
	@for program in nginx wrk; do command -v $$program >/dev/null || \
	  { echo "No $$program. Debian: apt-get install nginx-light wrk" >&2; exit 1; }; done
	@PYTHONPATH=tests $(PY) tests/benchmarks/run.py

.PHONY: bench-against
bench-against: java .venv/.spark cluster-binaries ## Compare with another commit in turns: BASE=d029342 [ROUNDS=5] [SHORT=1] [NAMES="intake journal"]
	@[ -n "$(BASE)" ] || { echo "Which commit? make bench-against BASE=COMMIT" >&2; exit 1; }
	@PYTHONPATH=tests $(PY) tests/benchmarks/against.py $(BASE) --rounds $(or $(ROUNDS),5) $(if $(SHORT),--short) $(NAMES)

.PHONY: bench-peers
bench-peers: .venv/.complete ## Compare with syslog-ng, rsyslog, NATS, arq and Celery at the same work (WRITE=1: into the manual)
	@PYTHONPATH=tests $(PY) -m benchmarks.peers --fetch
	@PYTHONPATH=tests $(PY) -m benchmarks.peers $(if $(EVENTS),--events $(EVENTS)) $(if $(WRITE),--write)

.PHONY: bench-node
bench-node: node-binaries ## Measure starts and a Spark job on a real node, as root on Linux (2 minutes)
	@PYTHONPATH=tests $(PY) -m pytest -q -p pillion_testbed.node_fixtures -p cluster.story_fixtures \
	  tests/benchmarks/node_figures.py

.PHONY: docs
docs: .venv/.complete ## Build the manual into site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2> >(grep -v "^INFO" >&2)
	@echo "site/index.html: open it in a browser"

.PHONY: generate
generate: .venv/.complete ## Write what is generated: crds/, docs/reference/, docs/rows.md, a picture
	@$(PY) tools/generate.py
	@$(PY) tools/generate_modules_picture.py

.PHONY: format
format: .venv/.complete ## Let ruff put the source into form
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

.PHONY: build
build: .venv/.complete ## Build wheel and sdist into dist/
	@$(PY) -m build --no-isolation --outdir dist . | tail -n 1

.PHONY: py-files
py-files: .venv/.complete ## Make dist/pyspark_pillion.zip, for spark-submit --py-files
	@$(PY) tools/py_files.py

.PHONY: release
release: cluster-binaries ## Make all that a release publishes in dist/, as root (OPTIONS=--snapshot: of any tree)
	@$(PY) tools/release.py $(OPTIONS)

.PHONY: clean
clean: ## Remove .venv and everything that was built
	rm -rf .venv .cache build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
