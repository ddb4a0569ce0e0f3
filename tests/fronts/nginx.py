"""nginx with deploy/nginx/holdfast.conf in front of two services, as an operator has them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.launch import Serve, Service, services
from tests.pgbouncer import through
from tests.processes import until
from tests.programs import free_port, program

CONF = Path(__file__).parents[2] / "deploy/nginx/holdfast.conf"
MAIN = """\
{account}
daemon off;
pid nginx.pid;
worker_processes 1;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path bodies;
    proxy_temp_path answers;
    fastcgi_temp_path other;
    uwsgi_temp_path other;
    scgi_temp_path other;
    include holdfast.conf;
}}
"""


class Fleet:
    """Two services on one database, and `url`: nginx in front of them."""

    def __init__(self, start: Serve, database_url: str, port: int, **settings: str) -> None:
        self._start = start
        self._settings = {"DATABASE_URL": through(database_url), "TRUSTED_PROXIES": "127.0.0.1"} | settings
        self.ports = free_port(), free_port()
        self.services = [self._serve(number) for number in range(2)]
        self.url = f"http://127.0.0.1:{port}"

    def restart(self, number: int) -> Service:
        """Stop one in order, and start it again; it has answered then."""
        self.services[number].stop()
        self.services[number] = self._serve(number)
        self.services[number].up()
        return self.services[number]

    def _serve(self, number: int) -> Service:
        # The first hears its own socket, the second hands connections to two workers.
        return self._start(PORT=str(self.ports[number]), WORKERS=str(number + 1), **self._settings)


@contextmanager
def fleet(folder: Path, database_url: str, **settings: str) -> Iterator[Fleet]:
    """Both services and nginx, once they answer."""
    port = free_port()
    with services(folder) as start:
        made = Fleet(start, database_url, port, **settings)
        for service in made.services:
            service.up()
        with nginx(folder, port, made.ports):
            yield made


@contextmanager
def nginx(folder: Path, port: int, behind: tuple[int, int]) -> Iterator[None]:
    """With the file as it is, but for the ports."""
    conf = CONF.read_text()
    places = {"listen 80;": f"listen 127.0.0.1:{port};"}
    places |= {f"127.0.0.1:{was} ": f"127.0.0.1:{now} " for was, now in zip((8080, 8081), behind, strict=True)}
    for was, now in places.items():
        assert conf.count(was) == 1, was
        conf = conf.replace(was, now)
    (folder / "holdfast.conf").write_text(conf)
    # A server that root starts gives its workers away, and they could not come into the folder.
    (folder / "nginx.conf").write_text(MAIN.format(account="user root;" if os.geteuid() == 0 else ""))
    log = folder / "nginx.log"
    command = [program("nginx"), "-p", str(folder), "-c", "nginx.conf", "-e", str(log)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:

        def up() -> bool:
            assert process.poll() is None, log.read_text()
            return (folder / "nginx.pid").exists() and bool((folder / "nginx.pid").read_text().strip())

        until(up, 30, or_show=log.read_text)
        yield
    finally:
        process.terminate()  # of nginx: at once
        process.wait(30)
