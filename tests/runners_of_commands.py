"""Which test runs a command of README or manual, and why the others are run by none."""

from __future__ import annotations

from typing import Final

BY_PAGE: Final = "tests/test_manual.py::test_its_commands_work_as_they_stand"
_HERE: Final = "tests/test_every_command.py::"
_FRESH: Final = "tests/test_fresh_copy.py::test_the_first_job_is_done_by_what_the_readme_says"
OPERATOR: Final = f"{_HERE}test_operators_commands_work_as_they_stand"
_SESSION: Final = "tests/spark/test_session.py::"
_WHEEL: Final = "tests/sdk/test_wheel.py::"
_CLUSTER: Final = "tests/spark/test_distribution.py::test_every_pipeline_on_a_cluster"
_BACKUP: Final = "tests/api/test_backup.py::test_a_restored_queue_and_those_who_knew_it_before"
_NGINX: Final = "tests/fronts/test_nginx.py::test_a_claim_waits_for_as_long_as_it_may"

# By "page $ command", as fnmatch has it: the test that runs it as it stands.
RUN: Final = {
    "README.md $ ./run": _FRESH,
    "README.md $ ./run demo": _FRESH,
    "docs/configuration.md $ psql *": _FRESH,
    "docs/operations/spark.md $ make spark-zip": _FRESH,
    "docs/spark.md $ .venv-spark/bin/python -c *": _FRESH,
    "docs/keys.md $ ./run keys add *": OPERATOR,
    "docs/users.md $ ./run users *": OPERATOR,
    "* $ ./run reap*": OPERATOR,
    "* $ ./run migrate": OPERATOR,
    "* $ ./run openapi": OPERATOR,
    "docs/operations/runbooks.md $ curl *": f"{_HERE}test_calls_with_a_key_work_as_they_stand",
    "docs/operations/deployment.md $ curl *": f"{_HERE}test_calls_with_a_key_work_as_they_stand",
    "docs/operations/monitoring.md $ for file *": f"{_HERE}test_rules_become_objects_of_the_operator",
    "docs/operations/deployment.md $ (umask 077; for *": "tests/test_deploy.py::test_the_manual_makes_every_secret",
    "docs/cli.md $ holdfast *": "tests/sdk/test_cli_page.py::test_its_examples_print_what_it_says",
    "docs/cli.md $ printf *": "tests/sdk/test_cli_page.py::test_its_examples_print_what_it_says",
    "docs/cli.md $ echo *": "tests/sdk/test_cli_page.py::test_its_examples_print_what_it_says",
    "docs/migrating/queue-ti.md $ psql *": "tests/sql/test_migrating.py::test_messages_of_queue_ti_are_copied_once",
    "docs/examples/README.md $ python *scraper.py": (
        "tests/sdk/test_examples.py::test_the_scraper_reads_each_page_once_and_not_too_fast"
    ),
    "* $ .venv/bin/python -m spark --help": f"{_SESSION}test_help_needs_neither_java_nor_a_database",
    "* $ make docs": "tests/test_site.py::test_every_page_is_a_page_of_the_site",
    "* $ .venv/bin/python -m tools.chaos --help": f"{_HERE}test_what_make_and_python_are_told_there_is",
    "* $ make chaos-short": "tests/tools/test_chaos_short.py::test_nothing_promised_is_lost_in_faults",
}

# The test that runs what it does, and what is different there.
ALIKE: Final = {
    "docs/configuration.md $ ./run demo": (_FRESH, "it is the same command in README"),
    "* $ holdfast import *": (
        "tests/sdk/test_cli_import.py::test_its_jobs_are_taken_once_and_come_as_they_would",
        "another file",
    ),
    "docs/examples/README.md $ python *letters.py": ("tests/sdk/test_examples.py::test_letters", "its own mail server"),
    "docs/quick-start.md $ ./run": (_FRESH, "it is the same command in README"),
    "docs/configuration.md $ ./run": (_FRESH, "it is the same command in README"),
    "* $ ./run serve": (_FRESH, "./run without a word is the same"),
    "* $ HOLDFAST_DATABASE_URL=* ./run": ("tests/test_image.py::test_what_it_is_made_of_serves", "another address"),
    "* $ createuser *": ("tests/db/test_owner.py::test_who_owns_the_database_can_migrate_it", "by SQL, other names"),
    "docs/configuration.md $ createdb *": (
        "tests/db/test_owner.py::test_who_owns_the_database_can_migrate_it",
        "by SQL, other names",
    ),
    "docs/operations/backup.md $ pg_dump *": (_BACKUP, "other names"),
    "docs/operations/backup.md $ createdb *": (_BACKUP, "by SQL"),
    "docs/operations/backup.md $ pg_restore *": (_BACKUP, "other names"),
    "docs/configuration.md $ ./run keys add": ("tests/commands/test_keys.py::test_a_keys_whole_life", "with a name"),
    "docs/configuration.md $ ./run users add": ("tests/commands/test_users.py::test_a_users_whole_life", "a name"),
    "* $ ./run migrate --down REV": (
        "tests/upgrades/test_scripts.py::test_back_to_nothing_and_up_again",
        "by the function that it calls",
    ),
    "CONTRIBUTING.md $ ./run": (_FRESH, "it is the same command in README"),
    "CONTRIBUTING.md $ ./test --list": (f"{_HERE}test_suites_are_listed", "nothing is installed before"),
    "* $ ./test tests -- *": (
        "tests/test_run_suites.py::test_what_follows_the_dashes_goes_to_pytest_only",
        "a suite of one command, which prints its words",
    ),
    "* $ HOLDFAST_TEST_EXAMPLES=1000 ./test *": (
        "tests/api/test_schemathesis.py::test_the_service_is_as_its_description_says",
        "fewer examples",
    ),
    "* $ pip install *": (
        f"{_WHEEL}test_the_pages_hold_with_nothing_but_the_wheel_and_a_service_that_has_just_been_started",
        "by uv, from the wheel that is built of the folder",
    ),
    "docs/examples/README.md $ python *thumbnails.py *": ("tests/sdk/test_examples.py::test_thumbnails", "a folder"),
    "docs/examples/README.md $ DATABASE_URL=* python *orders.py": (
        "tests/sdk/test_examples.py::test_an_order_and_its_job_are_there_together_or_not_at_all",
        "another address of the database",
    ),
    "docs/examples/README.md $ curl *": (
        "tests/sdk/test_examples.py::test_an_order_and_its_job_are_there_together_or_not_at_all",
        "by httpx, on another port",
    ),
    "docs/objects.md $ holdfast objects gc *": (
        "tests/sdk/test_garbage.py::test_the_command",
        "a store in a folder; that of S3 has tests of its own",
    ),
    "* $ make schema": (
        "tests/test_schema_snapshot.py::test_the_snapshot_is_what_the_migrations_make",
        "it compares what make would write",
    ),
    "* $ make openapi": ("tests/api/test_openapi.py::test_the_list_in_docs_is_current", "the same"),
    "* $ make reference": ("tests/test_reference.py::test_a_page_is_what_the_code_says", "the same"),
    "* $ make figures": (
        "tests/tools/test_bench_report.py::test_the_page_and_its_pictures_are_what_the_files_say",
        "the same",
    ),
    "* $ make exchanges": (
        "tests/api/test_exchanges.py::test_real_answers_are_as_it_says",
        "it compares what make records",
    ),
    "* $ make examples": (BY_PAGE, "it compares what make would write"),
    "* $ make workers": (
        "tests/sdk/test_worker_processes.py::test_workers_and_service_die_in_every_way",
        "fewer jobs",
    ),
    "* $ make wheel": (f"{_WHEEL}test_the_wheel_has_the_package_and_its_types", "into another folder"),
    "* $ make mutants": ("tests/tools/test_chaos_mutants.py::test_those_of_today_are_caught", "one a day"),
    "* $ MINUTES=60 make fuzz": ("tests/tools/test_fuzz_targets.py::test_any_bytes_are_read_or_refused", "for seconds"),
    "* $ make chaos*": ("tests/tools/test_chaos_short.py::test_nothing_promised_is_lost_in_faults", "for less time"),
    "* $ make scenarios": (
        "tests/tools/test_bench_scenarios.py::test_it_sees_what_goes_wrong_and_that_it_is_over",
        "one small one",
    ),
    "* $ python -m tools.bench.scenarios *": (
        "tests/tools/test_bench_scenarios.py::test_it_sees_what_goes_wrong_and_that_it_is_over",
        "a small one",
    ),
    "docs/operations/proxy.md $ cp *": (_NGINX, "into a folder of its own"),
    "docs/operations/proxy.md $ nginx *": (_NGINX, "the same file in that folder, so that no root is needed"),
    "* $ *python -m spark * audit*": ("tests/spark/test_audit.py::test_a_mixed_load_is_clean", "other days"),
    "* $ *python -m spark audit*": ("tests/spark/test_audit.py::test_a_mixed_load_is_clean", "other days"),
    "* $ python -m spark archive *": (
        "tests/spark/test_archive.py::test_a_closed_day_is_in_files_as_it_is_in_the_database",
        "another folder",
    ),
    "* $ python -m spark failures *": (
        "tests/spark/test_failures.py::test_clusters_and_what_sets_their_jobs_apart",
        "other days",
    ),
    "* $ python -m spark forecast *": (
        "tests/spark/test_forecast.py::test_a_queues_own_past_and_what_waits",
        "other days",
    ),
    "* $ python -m spark ingest *": (
        "tests/spark/test_ingest.py::test_bad_rows_refuse_all_or_go_aside_and_the_rest_comes_once",
        "the same words, and others",
    ),
    "* $ python -m spark latency *": (
        "tests/spark/test_minute_stats.py::test_spark_puts_right_what_the_sweep_told_and_agrees_with_it",
        "other days",
    ),
    "* $ python -m spark throughput *": (
        "tests/spark/test_minute_stats.py::test_spark_puts_right_what_the_sweep_told_and_agrees_with_it",
        "other days",
    ),
    "* $ python -m spark redrive *": (
        "tests/spark/test_redrive.py::test_those_that_fit_go_back_and_no_others",
        "other jobs",
    ),
    "* $ python -m spark replay *": (
        "tests/spark/test_replay.py::test_days_come_from_files_and_what_has_none_from_the_database",
        "other days",
    ),
    "docs/pipelines/README.md $ python -m spark NAME --help": (
        f"{_HERE}test_pipelines_take_the_words_of_the_manual",
        "each of the names",
    ),
    "* $ spark-submit *": (_CLUSTER, "a cluster of this machine"),
    "docs/operations/spark.md $ $SPARK_HOME/*": (_CLUSTER, "other ports"),
    "docs/operations/spark.md $ PYSPARK_PYTHON=*": (_CLUSTER, "other ports"),
    "docs/operations/spark.md $ export *": (_CLUSTER, "as variables of the process"),
}

_DOCKER: Final = "needs a container engine"
_MEASURES: Final = "measures for minutes, on a machine that does nothing else"
NOT_RUN: Final = {
    "CONTRIBUTING.md $ .venv/bin/pre-commit install": "writes a hook into the .git of whoever runs the tests",
    "CONTRIBUTING.md $ ./test": "it is what runs these tests",
    "CONTRIBUTING.md $ ./test checks": "a suite of ./test, beside these tests",
    "CONTRIBUTING.md $ make check": "the same suite",
    "CONTRIBUTING.md $ ./test bench": "a suite of ./test, beside these tests",
    "* $ make format": "changes the files of whoever runs it; ./test checks compares",
    "* $ make docs-serve": "serves until it is stopped what `make docs` builds",
    "* $ make house": "counts, for somebody to read; there is nothing that it must say",
    "* $ make pins": "asks a package index for the newest versions, and changes files",
    "* $ make sbom": "takes both cores for a quarter of a minute, longer than what it shows is worth in each ./test",
    "* $ make audit": "asks a vulnerability service",
    "* $ make mutation": "runs the kernel's tests for an hour",
    "* $ make pgbouncer": "takes minutes; the part of it that ./test all runs is in tests/run_suites.py",
    "* $ make failover*": "loses servers for minutes; the rules that judge it are those of make chaos",
    "* $ make herd": _MEASURES,
    "* $ make soak *": "takes hours; tests/tools/test_soak_slopes.py tests of what judges it",
    "* $ make bench": _MEASURES,
    "* $ .venv/bin/python -m tools.bench *": _MEASURES,
    "* $ .venv/bin/python -m tools.bench.latency*": _MEASURES,
    "* $ .venv/bin/python -m tools.bench.peers *": f"{_MEASURES}, with queues that it installs",
    "* $ make spark-bench": _MEASURES,
    "docs/peers.md $ uv pip compile *": "asks a package index for the newest versions",
    "docs/peers.md $ npm install *": "asks a package index for the newest versions",
    "docs/reliability.md $ .venv/bin/python -m tools.chaos.page *": "of a report that a run of half an hour writes",
    "docs/spark.md $ python3 -m venv *": "makes an environment in the folder, to download 400 MB into",
    "docs/spark.md $ .venv-spark/bin/pip install *": "downloads 400 MB",
    "docs/spark.md $ PYSPARK_PYTHON=*": "waits for what is typed",
    "docs/operations/spark.md $ python3 -m venv *": "downloads 400 MB",
    "* $ docker *": _DOCKER,
    "* $ kubectl *": "needs a cluster",
    "docs/operations/deployment.md $ git clone *": "needs root, and fetches the repository",
    "docs/operations/deployment.md $ python3 -m venv *": "downloads packages, as ./run does",
    "docs/operations/deployment.md $ install *": "writes into /etc",
    "docs/operations/deployment.md $ (umask 077; echo *": "writes into /etc",
    "docs/operations/deployment.md $ cp *": "writes into /etc",
    "docs/operations/deployment.md $ systemctl *": "needs systemd as the first process, and root",
}
