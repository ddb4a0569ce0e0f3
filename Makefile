# What a contributor types. Using Holdfast needs ./run and ./test only.
PYTHON := .venv/bin/python
UV = $(shell bash -c 'source deploy/bootstrap.sh && find_uv && printf %s "$$UV"')
RELEASE := var/release
COMPILE = $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11

.DEFAULT_GOAL := help
# What these run is in .venv, which they make first: in a fresh clone each works by itself.
IN_VENV := format pins audit sbom schema openapi examples exchanges release bench figures docs docs-serve house reference dashboards scenarios chaos chaos-short mutants mutation fuzz pgbouncer pictures pages failover herd soak spark-zip spark-bench
.PHONY: help installed run test check $(IN_VENV)
$(IN_VENV): | installed

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

installed:
	@./test --list >/dev/null

run: ## start the service, as ./run does
	./run

test: ## the tests of every change, as ./test does; ./test all runs the slow ones, too
	./test

check: ## lint, format, types, import rules, pins, bandit
	./test checks

format: ## format the code, and fix what the linter can fix
	$(PYTHON) -m ruff check --fix-only --quiet
	$(PYTHON) -m ruff format

house: ## count what there should be one of, and what is generated, beside the goals; NAMED="loops caches" says where they are
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

audit: ## look whether anything that is pinned has a known fault; asks a vulnerability service, and fails without one
	$(PYTHON) -m pip_audit --strict --disable-pip --require-hashes $(AUDIT) -r deploy/requirements/dev.txt

sbom: ## write var/sbom/*.cdx.json: bills of what is pinned, for the service, the image, their development and Spark, in CycloneDX
	$(PYTHON) deploy/bill.py var/sbom

schema: ## write docs/schema.sql anew from the migrations
	$(PYTHON) -m tests.schema_snapshot

openapi: ## write docs/routes.txt anew from the code: what each route takes and answers, in short
	$(PYTHON) -m tests.routes

reference: ## write docs/errors.md, http.md and parts of other pages from the code
	$(PYTHON) -m tests.reference

dashboards: ## write Grafana's dashboards into var/dashboards, for a Grafana of your own; Compose's has them by itself
	$(PYTHON) deploy/grafana/dashboards.py var/dashboards

docs: ## build the manual as a site, into site/
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

docs-serve: ## show the manual as a site while you write, on port 8000
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs serve

examples: ## take the examples of app/http/examples.json anew from a run of docs/v0.md
	HOLDFAST_TEST_WRITE_EXAMPLES=1 $(PYTHON) -m pytest -q tests/test_manual.py

exchanges: ## record anew what every route answers, into tests/exchanges
	HOLDFAST_TEST_WRITE_EXCHANGES=1 $(PYTHON) -m pytest -q tests/api/test_exchanges.py

release: ## build what is published into var/release: wheels and source archives of client and service, with checksums
	rm -rf $(RELEASE)
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(UV) build --quiet --out-dir $(RELEASE) sdk
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(UV) build --quiet --out-dir $(RELEASE) .
	rm -f $(RELEASE)/.gitignore
	cd $(RELEASE) && sha256sum *.whl *.tar.gz >SHA256SUMS && cat SHA256SUMS

bench: ## measure the bars; takes some minutes on a machine that does nothing else
	$(PYTHON) -m tools.bench

figures: ## write docs/benchmarks.md's tables and pictures anew from docs/benchmarks/*.json, and shorten those
	$(PYTHON) -m tools.bench.report

chaos: ## faults of nineteen kinds beside traffic whose history is checked, for MINUTES=30; SEED= of an earlier run
	$(PYTHON) -m tools.chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

chaos-short: ## the same for two minutes, as ./test all has it
	$(PYTHON) -m pytest -s tests/tools/test_chaos_short.py

soak: ## hours of traffic with few faults, HOURS=6: what grows in memory, connections, tables and log; a report in var/soak; SEED= of an earlier run
	$(PYTHON) -m tools.chaos soak --hours $(or $(HOURS),6) $(if $(SEED),--seed $(SEED))

failover: ## primaries are lost, killed and silent by turns, and standbys promoted, for MINUTES=3 beside traffic whose history is checked; SEED= of an earlier run
	$(PYTHON) -m tools.chaos failover --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED))

herd: ## the database is away for half a minute, killed and unheard, beside clients that all come back at once; takes four minutes, and root
	$(PYTHON) -m tools.chaos herd

mutation: ## how many of 150 machine-made mutants of app/kernel the tests find; SEED=2 for others, TREE=../old for the tests of another checkout
	$(UV) pip install --quiet --require-hashes --no-deps --target .tools/mutation -r tools/mutation/requirements.txt
	$(PYTHON) -m tools.mutation --seed $(or $(SEED),1) --tree $(or $(TREE),.)

mutants: ## show that the checks find the product's mutants: patches that break a promise each, in copies of the tree
	$(PYTHON) -m tools.chaos.mutants

fuzz: ## look for input that breaks what reads it, for MINUTES (10) in all, then make requests, EXAMPLES (100) of each route; crashes and corpora are kept in var/fuzz
	$(PYTHON) -m tools.fuzz --minutes $(or $(MINUTES),10)
	HOLDFAST_TEST_EXAMPLES=$(or $(EXAMPLES),100) $(PYTHON) -m pytest tests/api/test_schemathesis.py

pgbouncer: ## all tests of the API through PgBouncer in transaction mode, with two connections for each database
	HOLDFAST_TEST_PGBOUNCER=1 $(PYTHON) -m pytest -n 2 tests/api

pictures: ## write docs/pictures anew: admin pages for README.md
	$(PYTHON) -m tools.pages.pictures

scenarios: ## nine scenarios of trouble under load, by name, and how much of the rate is there again; takes seven minutes
	$(PYTHON) -m tools.bench.scenarios --json docs/benchmarks/scenarios.json
	$(MAKE) figures

pages: ## measure the admin pages beside ten million jobs; takes some minutes, and some GB meanwhile
	$(PYTHON) -m tools.pages.depth

spark-zip: ## write holdfast-spark.zip: what spark-submit --py-files takes
	$(PYTHON) -c 'from pathlib import Path; from spark.session import zipped; print(zipped(Path(".")))'

spark-bench: ## measure reads and pipelines over a million events, and a write of a million jobs; takes some minutes
	$(PYTHON) -m tools.bench.spark_reads --json docs/benchmarks/spark.json
	$(PYTHON) -m tools.bench.spark_write --rows 1000000 --beside
