"""The settings of a process: one frozen model, read from HOLDFAST_* once at boot."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from app.base import cron, keys
from app.errors import ConfigurationError

PREFIX = "HOLDFAST_"
IGNORED_PREFIX = "HOLDFAST_TEST_"
# Variables of the client and of docker-compose.yml: a shell that has them exported starts the service all the same.
CLIENTS_KEY = "HOLDFAST_API_KEY"
CLIENT_VARIABLES = frozenset({"HOLDFAST_URL", CLIENTS_KEY, "HOLDFAST_NODE"})
COMPOSE_VARIABLES = frozenset({"HOLDFAST_ADMIN_KEY", "HOLDFAST_METRICS_KEY"})
MIB = 1024 * 1024
LEAST_SECRET_BYTES = 32
SECRETS = ("database_url", "redis_url", "api_keys", "jwt_secret", "webhook_secret")  # may come in files
_ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]+\Z")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Settings(BaseModel):
    """What an operator can set. Each field is read from HOLDFAST_<NAME IN CAPITALS>."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: SecretStr | None = Field(
        None,
        description="postgresql://user:password@host:port/name. Unset: the embedded PostgreSQL in the data folder.",
    )
    redis_url: SecretStr | None = Field(
        None,
        description="redis://host:port/0. Optional: wakes waiting workers and spreads configuration between processes.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    data_dir: Path = Field(Path("var"), description="Where the embedded PostgreSQL keeps its data.")
    pg_bindir: Path | None = Field(None, description="Folder with initdb and postgres for the embedded server.")
    api_keys: tuple[keys.Key, ...] = Field(
        (),
        repr=False,
        exclude=True,
        description="Comma list of key[:scopes[:prefixes]], besides `keys add`. No key, no user: open, loopback only.",
    )
    allow_insecure_no_auth: bool = Field(
        False, description="1 allows an address that is not loopback without any key or user."
    )
    jwt_secret: SecretStr | None = Field(
        None, description="Signs users' tokens: 32 bytes or more. Unset: one that is kept in the database."
    )
    token_seconds: int = Field(900, ge=1, le=86_400, description="How long a user's token is good.")
    bcrypt_cost: int = Field(12, ge=10, le=16, description="Binary logarithm of bcrypt's rounds, for new passwords.")
    trusted_proxies: str = Field(
        "",
        description="Comma list of addresses or networks whose X-Real-IP is believed, for the limit on sign-in and the "
        "audit trail; and X-Forwarded-Proto, for the commands that the admin pages show.",
    )
    probe_auth: bool = Field(False, description="1: /healthz and /readyz need sign-in as well, where it is on.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe line that is logged."
    )
    log_format: Literal["text", "json"] = Field("text", description="How lines are logged: for people, or as JSON.")
    access_log: bool = Field(False, description="1: a line at level info for each request, when it has ended.")
    workers: int = Field(1, ge=1, le=64, description="Server processes behind the port.")
    hot_connections: int = Field(
        8, ge=2, le=200, description="Connections for enqueue, claim, ack, nack, extend; per class of durability."
    )
    rest_connections: int = Field(4, ge=1, le=100, description="Connections for everything else.")
    prepared_statements: bool = Field(True, description="0 behind a pooler that can't keep them.")
    max_body_bytes: int = Field(64 * MIB, ge=1024, le=1024 * MIB, description="Largest request body.")
    ingest_origins: str = Field(
        "",
        description="Comma list of origins whose pages may read the answers of public topics at /in, and users' "
        "events; * for any.",
    )
    max_waiting: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Calls that may wait for one verb of one topic; more get 429, below /api 503.",
    )
    max_streams: int = Field(5_000, ge=1, le=100_000, description="Open streams in one process; more get 429.")
    max_streams_per_key: int = Field(
        1_000, ge=0, le=100_000, description="Open streams of one API key in one process; more get 429. 0: no bound."
    )
    max_requests_per_key: int = Field(
        1_000,
        ge=0,
        le=100_000,
        description="Requests of one API key under way in one process; more get 429. 0: no bound.",
    )
    max_buffered_bytes: int = Field(
        256 * MIB,
        ge=1024,
        le=64 * 1024 * MIB,
        description="Bytes of bodies and unread answers held in one process; more get 429.",
    )
    max_total_bytes: int = Field(
        0, ge=0, le=2**62, description="Bytes that all topics together may hold; more get 429. 0: no bound."
    )
    max_connections: int = Field(
        10_000, ge=1, le=1_000_000, description="Open connections in one process; more get 503."
    )
    max_header_bytes: int = Field(
        16 * 1024, ge=1024, le=MIB, description="Size of a request's header fields; larger gets 431."
    )
    header_seconds: float = Field(10.0, ge=0.1, le=600, description="How long a request's header may take; then 408.")
    body_seconds: float = Field(
        30.0, ge=0.1, le=600, description="How long a body may take, and 1 s more for each 64 KiB of it; then 408."
    )
    write_seconds: float = Field(
        30.0, ge=0.1, le=600, description="How long a client may take to read, and 1 s more for each 64 KiB."
    )
    metrics_topics: int = Field(
        1_000, ge=0, le=10_000, description="Topics that /metrics shows one by one; of more it says so."
    )
    delete_reaper_schedule: str = Field(
        "",
        description="Cron of five fields, in UTC: when expired jobs are deleted, unless set at run time. Empty: never.",
    )
    archive_to_files: bool = Field(
        False,
        description="1: days of events, results and the archive stay until the pipeline `archive` has them in files.",
    )
    max_retries: int = Field(
        3,
        ge=0,
        le=10_000,
        description="Tries of a job whose topic leaves it open; 0: one, and no dead letter.",
    )
    dlq_threshold: int = Field(
        3, ge=0, le=10_000, description="Deliveries after which a job is a dead letter, the same; 0: it never is."
    )
    message_ttl_seconds: int = Field(
        86_400, ge=0, le=315_360_000, description="How long a job lives, the same; 0: for ever."
    )
    visibility_timeout_seconds: int = Field(30, ge=1, le=86_400, description="Length of a lease, the same.")
    webhook_allow: str = Field(
        "",
        description="Comma list of addresses, networks and host names that webhooks may reach though they are private.",
    )
    webhook_secret: SecretStr | None = Field(
        None, description="Signs webhooks whose topic has no secret: 32 bytes or more. May be whsec_ and base64."
    )
    start_wait_seconds: float = Field(
        60.0,
        ge=0,
        le=3600,
        description="How long a start waits for a database that does not answer yet; 0: not at all.",
    )
    traces: Literal["off", "otlp"] = Field(
        "off",
        description="otlp sends traces of enqueues, claims and settlements over OTLP/HTTP to where "
        "OTEL_EXPORTER_OTLP_ENDPOINT says.",
    )
    stop_seconds: float = Field(8.0, ge=0.5, le=60, description="How long a stop waits for what is in flight.")

    @field_validator("database_url")
    @classmethod
    def _postgres_url(cls, value: SecretStr | None) -> SecretStr | None:
        return _url(value, {"postgresql", "postgres"}, several=True)

    @field_validator("redis_url")
    @classmethod
    def _redis_url(cls, value: SecretStr | None) -> SecretStr | None:
        return _url(value, {"redis", "rediss", "unix"})

    @field_validator("api_keys", mode="before")
    @classmethod
    def _keys(cls, value: object) -> object:
        """Their hashes: the text is not kept."""
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return tuple(keys.parse(text)) if isinstance(text, str) else value

    @field_validator("jwt_secret", "webhook_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < LEAST_SECRET_BYTES:
            raise ValueError(
                f"must have {LEAST_SECRET_BYTES} bytes or more; who guesses it can sign in the place of the service"
            )
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        networks_of(value)
        return value

    @field_validator("webhook_allow")
    @classmethod
    def _targets(cls, value: str) -> str:
        targets_of(value)
        return value

    @field_validator("ingest_origins")
    @classmethod
    def _origins(cls, value: str) -> str:
        for origin in origins_of(value):
            if origin != "*" and _ORIGIN.match(origin) is None:
                raise ValueError(f"{origin!r} is no origin: those are https://host or https://host:port, or *")
        return value

    @field_validator("delete_reaper_schedule")
    @classmethod
    def _schedule(cls, value: str) -> str:
        return cron.parse(value)

    @model_validator(mode="after")
    def _a_body_must_fit(self) -> Self:
        if self.max_buffered_bytes < self.max_body_bytes:
            raise ValueError(
                f"{PREFIX}MAX_BUFFERED_BYTES ({self.max_buffered_bytes}) is less than {PREFIX}MAX_BODY_BYTES "
                f"({self.max_body_bytes}): no body of that size could ever be taken"
            )
        return self

    @property
    def proxies(self) -> tuple[Network, ...]:
        """The networks of trusted_proxies."""
        return networks_of(self.trusted_proxies)

    @property
    def webhook_targets(self) -> tuple[frozenset[str], tuple[Network, ...]]:
        """The host names and networks of webhook_allow."""
        return targets_of(self.webhook_allow)

    @property
    def connections(self) -> int:
        """The most that all workers together open to the database."""
        return self.workers * (2 * self.hot_connections + self.rest_connections)

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read and validate. Raises ConfigurationError with one line that names every fault."""
        given = read(environ)
        unknown = sorted(set(given) - set(cls.model_fields))
        if unknown:
            raise ConfigurationError("; ".join(_unknown(name, list(cls.model_fields)) for name in unknown))
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ConfigurationError("; ".join(_fault(e["loc"], e["msg"]) for e in error.errors())) from None


def read(environ: Mapping[str, str]) -> dict[str, str]:
    """What is set, by the settings' names; a secret also from the file that HOLDFAST_<NAME>_FILE names.

    Raises ConfigurationError for a secret that is set twice, and for a file that says nothing.
    """
    given = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX)
        and not name.startswith(IGNORED_PREFIX)
        and name not in CLIENT_VARIABLES | COMPOSE_VARIABLES
        and value != ""
    }
    for name in SECRETS:
        path = given.pop(f"{name}_file", None)
        if path is not None:
            variable = f"{PREFIX}{name.upper()}"
            if name in given:
                raise ConfigurationError(f"{variable} and {variable}_FILE are both set")
            try:
                given[name] = Path(path).read_text().strip()
            except (OSError, UnicodeError) as error:
                raise ConfigurationError(f"{variable}_FILE: {path} can't be read: {error}") from None
            if not given[name]:
                raise ConfigurationError(f"{variable}_FILE: {path} is empty")
    return given


def forget_secrets() -> None:
    """Take the secrets out of this process's environment: what it starts does not inherit them, and who may look at the
    process does not see them there."""
    names = [name for name in (f"{PREFIX}{secret.upper()}" for secret in SECRETS) if name in os.environ]
    if not names:
        return
    import ctypes  # noqa: PLC0415  (start time)

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in names:
        value = ctypes.c_void_p(libc.getenv(name.encode()))
        if value:
            ctypes.memset(value, 0, libc.strlen(value))
        del os.environ[name]


def origins_of(text: str) -> frozenset[str]:
    """The origins of a comma list, as browsers send them."""
    return frozenset(part.strip().lower() for part in text.split(",") if part.strip())


def is_loopback(host: str) -> bool:
    """Whether an address to bind to can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def networks_of(text: str) -> tuple[Network, ...]:
    """The networks of a comma list; an address is one of its own. Raises ValueError for what is none."""
    return tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())


def targets_of(text: str) -> tuple[frozenset[str], tuple[Network, ...]]:
    """The host names, in lower case, and the networks of a comma list. Raises ValueError for what is neither."""
    hosts: set[str] = set()
    networks: list[Network] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            networks += networks_of(part)
        except ValueError:
            if not part.replace("-", "").replace(".", "").isalnum():
                raise ValueError(f"{part!r} is no address, network or host name") from None
            hosts.add(part.lower())
    return frozenset(hosts), tuple(networks)


def _url(value: SecretStr | None, schemes: set[str], *, several: bool = False) -> SecretStr | None:
    """`several`: whether it may name several hosts, by commas."""
    if value is None:
        return None
    try:
        parts = urlsplit(value.get_secret_value())
        hosts = parts.netloc.rpartition("@")[2]
        ports = [urlsplit(f"//{host}").port for host in (hosts.split(",") if several else [hosts])]
        fits = parts.scheme in schemes and 0 not in ports
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"must be a URL that starts with {' or '.join(sorted(s + '://' for s in schemes))}")
    return value


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
    return f"{PREFIX}{name.upper()} is not a setting{hint}"


def _fault(loc: tuple[int | str, ...], message: str) -> str:
    text = message.removeprefix("Value error, ")
    return f"{PREFIX}{str(loc[0]).upper()}: {text[0].lower()}{text[1:]}" if loc else text
