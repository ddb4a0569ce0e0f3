# Commands for contributors. Users of Holdfast only need ./run and ./test.
PYTHON := .venv/bin/python
UV = $(shell bash -c 'source deploy/bootstrap.sh && find_uv && printf %s "$$UV"')
RELEASE := var/release
COMPILE = $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11

.DEFAULT_GOAL := help
# These need .venv and create it first, so that each works in a fresh clone.
IN_VENV := format pins audit sbom schema openapi examples exchanges release bench figures docs docs-serve house reference dashboards scenarios chaos chaos-short mutants mutation fuzz pgbouncer pictures pages failover herd soak spark-zip spark-bench
.PHONY: help installed run test check $(IN_VENV)
$(IN_VENV): | installed

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

installed:
	@./test --list >/dev/null

run: ## start the service, as ./run does
	./run

test: ## run the tests for every change, as ./test does; ./test all includes the slow tests
	./test

check: ## check lint, format, types, import rules, pins and bandit's rules
	./test checks

format: ## format the code and apply the linter's automatic fixes
	$(PYTHON) -m ruff check --fix-only --quiet
	$(PYTHON) -m ruff format

house: ## compare counts of the code's constructs with their goals; NAMED="loops caches" shows where they are
	$(PYTHON) -m tests.house $(NAMED)

pins: ## pin the newest versions that pyproject.toml allows
	$(COMPILE) --upgrade pyproject.toml -o deploy/requirements/run.txt
	$(COMPILE) --upgrade pyproject.toml --extra tracing -c deploy/requirements/run.txt -o deploy/requirements/tracing.txt
	$(COMPILE) --upgrade pyproject.toml --group dev --group spark -c deploy/requirements/tracing.txt -o deploy/requirements/dev.txt
	$(COMPILE) --upgrade --group spark -c deploy/requirements/dev.txt -o deploy/requirements/spark.txt
	$(COMPILE) --upgrade sdk/pyproject.toml -c deploy/requirements/dev.txt -o deploy/requirements/client.txt
	printf "%s\n" mutmut libcst pyyaml coverage pytest-cov | $(COMPILE) --upgrade --no-deps - -o tools/mutation/requirements.txt
	echo uv | $(COMPILE) --upgrade - -o deploy/requirements/tools.txt
	$(PYTHON) deploy/check_pins.py

audit: ## check the pinned packages for known vulnerabilities, with an online service
	$(PYTHON) -m pip_audit --strict --disable-pip --require-hashes $(AUDIT) -r deploy/requirements/dev.txt

sbom: ## write var/sbom/*.cdx.json: CycloneDX bills of materials of the service, the image, development and Spark
	$(PYTHON) deploy/bill.py var/sbom

schema: ## update docs/schema.sql from the migrations
	$(PYTHON) -m tests.schema_snapshot

openapi: ## update docs/routes.txt, a summary of each route's request and answer, from the code
	$(PYTHON) -m tests.routes

reference: ## write docs/errors.md, http.md and parts of other pages from the code
	$(PYTHON) -m tests.reference

dashboards: ## write Grafana's dashboards into var/dashboards, for your own Grafana; Compose's has them already
	$(PYTHON) deploy/grafana/dashboards.py var/dashboards

docs: ## build the manual's site in site/
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

docs-serve: ## serve the manual's site on port 8000 and rebuild it on changes
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs serve

examples: ## update app/http/examples.json from a run of the examples in docs/v0.md
	HOLDFAST_TEST_WRITE_EXAMPLES=1 $(PYTHON) -m pytest -q tests/test_manual.py

exchanges: ## record the answers of every route in tests/exchanges again
	HOLDFAST_TEST_WRITE_EXCHANGES=1 $(PYTHON) -m pytest -q tests/api/test_exchanges.py

release: ## build the release in var/release: wheels and source archives of client and service, with checksums
	rm -rf $(RELEASE)
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(UV) build --quiet --out-dir $(RELEASE) sdk
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(UV) build --quiet --out-dir $(RELEASE) .
	rm -f $(RELEASE)/.gitignore
	cd $(RELEASE) && sha256sum *.whl *.tar.gz >SHA256SUMS && cat SHA256SUMS

bench: ## measure the performance targets; takes some minutes on an otherwise idle machine
	$(PYTHON) -m tools.bench

figures: ## update the tables and pictures of docs/benchmarks.md from docs/benchmarks/*.json, and shorten these files
	$(PYTHON) -m tools.bench.report

chaos: ## inject nineteen kinds of faults under load and check the history, for MINUTES=30; SEED= repeats a run
	$(PYTHON) -m tools.chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

chaos-short: ## the same for two minutes, as in ./test all
	$(PYTHON) -m pytest -s tests/tools/test_chaos_short.py

soak: ## run traffic with few faults for HOURS=6 and report growth of memory, connections, tables and WAL in var/soak; SEED= repeats a run
	$(PYTHON) -m tools.chaos soak --hours $(or $(HOURS),6) $(if $(SEED),--seed $(SEED))

failover: ## kill or disconnect primaries and promote standbys under load for MINUTES=3, and check the history; SEED= repeats a run
	$(PYTHON) -m tools.chaos failover --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED))

herd: ## take the database down for half a minute while many clients reconnect at once; takes four minutes, needs root
	$(PYTHON) -m tools.chaos herd

mutation: ## count how many of 150 generated mutants of app/kernel the tests detect; SEED=2 for others, TREE=../old for another checkout's tests
	$(UV) pip install --quiet --require-hashes --no-deps --target .tools/mutation -r tools/mutation/requirements.txt
	$(PYTHON) -m tools.mutation --seed $(or $(SEED),1) --tree $(or $(TREE),.)

mutants: ## show that the checks detect each patch that breaks a guarantee, in copies of the tree
	$(PYTHON) -m tools.chaos.mutants

fuzz: ## fuzz the parsers for MINUTES (10) in total, then every route with EXAMPLES (100) requests; var/fuzz keeps crashes and corpora
	$(PYTHON) -m tools.fuzz --minutes $(or $(MINUTES),10)
	HOLDFAST_TEST_EXAMPLES=$(or $(EXAMPLES),100) $(PYTHON) -m pytest tests/api/test_schemathesis.py

pgbouncer: ## run all API tests through PgBouncer in transaction mode with two connections per database
	HOLDFAST_TEST_PGBOUNCER=1 $(PYTHON) -m pytest -n 2 tests/api

pictures: ## update docs/pictures, the pictures of admin pages in README.md
	$(PYTHON) -m tools.pages.pictures

scenarios: ## run nine failure scenarios under load and report how far the rate recovers; takes seven minutes
	$(PYTHON) -m tools.bench.scenarios --json docs/benchmarks/scenarios.json
	$(MAKE) figures

pages: ## measure the admin pages with ten million jobs; takes some minutes and some GB
	$(PYTHON) -m tools.pages.depth

spark-zip: ## write holdfast-spark.zip for spark-submit --py-files
	$(PYTHON) -c 'from pathlib import Path; from spark.session import zipped; print(zipped(Path(".")))'

spark-bench: ## measure reads and pipelines of a million events and a write of a million jobs; takes some minutes
	$(PYTHON) -m tools.bench.spark_reads --json docs/benchmarks/spark.json
	$(PYTHON) -m tools.bench.spark_write --rows 1000000 --beside
