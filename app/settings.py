"""A process's settings: one frozen model, read from the environment (HOLDFAST_*) at start."""

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
# Variables of the client and of docker-compose.yml. The service ignores them, so that it starts in a shell that has
# them.
CLIENTS_KEY = "HOLDFAST_API_KEY"
CLIENT_VARIABLES = frozenset({"HOLDFAST_URL", CLIENTS_KEY, "HOLDFAST_NODE"})
COMPOSE_VARIABLES = frozenset({"HOLDFAST_ADMIN_KEY", "HOLDFAST_METRICS_KEY"})
MIB = 1024 * 1024
LEAST_SECRET_BYTES = 32
SECRETS = ("database_url", "redis_url", "api_keys", "jwt_secret", "webhook_secret")  # may be read from files
_ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]+\Z")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Settings(BaseModel):
    """The operator's settings. Each field is read from HOLDFAST_<NAME IN CAPITALS>."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: SecretStr | None = Field(
        None,
        description="postgresql://user:password@host:port/name. Unset: use the embedded PostgreSQL in the data folder.",
    )
    redis_url: SecretStr | None = Field(
        None,
        description="redis://host:port/0. Optional: wakes waiting workers and shares configuration between processes.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0: any free port.")
    data_dir: Path = Field(Path("var"), description="Data folder of the embedded PostgreSQL.")
    pg_bindir: Path | None = Field(None, description="Folder with initdb and postgres for the embedded PostgreSQL.")
    api_keys: tuple[keys.Key, ...] = Field(
        (),
        repr=False,
        exclude=True,
        description="Comma-separated list of key[:scopes[:prefixes]], in addition to `keys add`. Without keys and "
        "users the service is open, on loopback only.",
    )
    allow_insecure_no_auth: bool = Field(False, description="1: allow a non-loopback address without any key or user.")
    jwt_secret: SecretStr | None = Field(
        None, description="Secret that signs users' tokens, 32 bytes or more. Unset: use the one in the database."
    )
    token_seconds: int = Field(900, ge=1, le=86_400, description="How long a user's token is valid.")
    bcrypt_cost: int = Field(12, ge=10, le=16, description="Binary logarithm of bcrypt's rounds, for new passwords.")
    trusted_proxies: str = Field(
        "",
        description="Comma-separated list of proxies' addresses or networks. Their X-Real-IP is used in the sign-in "
        "limit and the audit trail, their X-Forwarded-Proto in commands on the admin pages.",
    )
    probe_auth: bool = Field(False, description="1: /healthz and /readyz need sign-in too, if sign-in is on.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level to log.")
    log_format: Literal["text", "json"] = Field("text", description="Format of log lines: text for people, or JSON.")
    access_log: bool = Field(False, description="1: log a line at level info for each finished request.")
    sqs_account: str = Field(
        "000000000000", pattern=r"^[0-9]{12}$", description="Account in addresses and ARNs of the SQS endpoint."
    )
    sqs_beyond: bool = Field(
        False,
        description="1 lets SQS clients go beyond AWS: delays over 900 s, batches over 10, retention over 14 days.",
    )
    workers: int = Field(1, ge=1, le=64, description="Number of server processes.")
    hot_connections: int = Field(
        8, ge=2, le=200, description="Connections for enqueue, claim, ack, nack and extend, per class of durability."
    )
    rest_connections: int = Field(4, ge=1, le=100, description="Connections for everything else.")
    prepared_statements: bool = Field(
        True, description="0: don't use prepared statements, for a pooler without support for them."
    )
    max_body_bytes: int = Field(64 * MIB, ge=1024, le=1024 * MIB, description="Largest request body.")
    ingest_origins: str = Field(
        "",
        description="Comma-separated list of origins whose pages may read answers of public topics at /in, and users' "
        "events; *: any origin.",
    )
    max_waiting: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Most calls of one verb waiting for one topic. More get 429, under /api 503.",
    )
    max_streams: int = Field(5_000, ge=1, le=100_000, description="Most open streams per process. More get 429.")
    max_streams_per_key: int = Field(
        1_000, ge=0, le=100_000, description="Most open streams per API key and process. More get 429. 0: no limit."
    )
    max_requests_per_key: int = Field(
        1_000,
        ge=0,
        le=100_000,
        description="Most concurrent requests per API key and process. More get 429. 0: no limit.",
    )
    max_buffered_bytes: int = Field(
        256 * MIB,
        ge=1024,
        le=64 * 1024 * MIB,
        description="Most bytes of bodies and unread answers in memory per process. More get 429.",
    )
    max_total_bytes: int = Field(
        0, ge=0, le=2**62, description="Most bytes in all topics together. More get 429. 0: no limit."
    )
    max_connections: int = Field(
        10_000, ge=1, le=1_000_000, description="Most open connections per process. More get 503."
    )
    max_header_bytes: int = Field(
        16 * 1024, ge=1024, le=MIB, description="Largest size of a request's header fields. Larger ones get 431."
    )
    header_seconds: float = Field(10.0, ge=0.1, le=600, description="Time limit for a request's header, then 408.")
    body_seconds: float = Field(
        30.0, ge=0.1, le=600, description="Time limit for a request's body, plus 1 s for each 64 KiB, then 408."
    )
    write_seconds: float = Field(
        30.0, ge=0.1, le=600, description="Time limit for a client to read an answer, plus 1 s for each 64 KiB."
    )
    metrics_topics: int = Field(
        1_000, ge=0, le=10_000, description="Most topics that /metrics lists separately. It reports if there are more."
    )
    delete_reaper_schedule: str = Field(
        "",
        description="When expired jobs are deleted, unless set at run time: a cron expression of five fields in UTC. "
        "Empty: never.",
    )
    archive_to_files: bool = Field(
        False,
        description="1: keep each day of events, results and the archive until the pipeline `archive` has written it "
        "to files.",
    )
    max_retries: int = Field(
        3,
        ge=0,
        le=10_000,
        description="Topics' default for max_retries: tries of a job. 0: one try and no dead letter.",
    )
    dlq_threshold: int = Field(
        3,
        ge=0,
        le=10_000,
        description="Topics' default for dlq_threshold: deliveries after which a job becomes a dead letter. 0: never.",
    )
    message_ttl_seconds: int = Field(
        86_400, ge=0, le=315_360_000, description="Topics' default for how long a job lives. 0: forever."
    )
    visibility_timeout_seconds: int = Field(
        30, ge=1, le=86_400, description="Topics' default for how long a lease lasts."
    )
    webhook_allow: str = Field(
        "",
        description="Comma-separated list of private addresses, networks and host names that webhooks may reach.",
    )
    webhook_secret: SecretStr | None = Field(
        None,
        description="Secret that signs webhooks of topics without their own, 32 bytes or more. whsec_ and base64 is "
        "accepted.",
    )
    start_wait_seconds: float = Field(
        60.0,
        ge=0,
        le=3600,
        description="How long a start waits for an unreachable database. 0: not at all.",
    )
    traces: Literal["off", "otlp"] = Field(
        "off",
        description="otlp: send traces of enqueues, claims and settlements over OTLP/HTTP to "
        "OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    stop_seconds: float = Field(8.0, ge=0.5, le=60, description="How long a stop waits for requests in progress.")

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
        """Parses the list and keeps only digests."""
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return tuple(keys.parse(text)) if isinstance(text, str) else value

    @field_validator("jwt_secret", "webhook_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < LEAST_SECRET_BYTES:
            raise ValueError(
                f"must have {LEAST_SECRET_BYTES} bytes or more. A guessed secret lets others sign in the service's name"
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
                raise ValueError(f"{origin!r} is not an origin. Use https://host, https://host:port or *")
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
                f"({self.max_body_bytes}), so the largest body would never be accepted"
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
        """The most database connections of all workers together."""
        return self.workers * (2 * self.hot_connections + self.rest_connections)

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read and validate the settings. Raises ConfigurationError; its message lists all faults in one line."""
        given = read(environ)
        unknown = sorted(set(given) - set(cls.model_fields))
        if unknown:
            raise ConfigurationError("; ".join(_unknown(name, list(cls.model_fields)) for name in unknown))
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ConfigurationError("; ".join(_fault(e["loc"], e["msg"]) for e in error.errors())) from None


def read(environ: Mapping[str, str]) -> dict[str, str]:
    """The values that are set, by setting. Secrets may be in files named by HOLDFAST_<NAME>_FILE.

    Raises ConfigurationError for a secret that is set twice, and for an unreadable or empty file.
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
    """Erase the secrets from this process's environment. Child processes don't inherit them, and they are not visible
    in /proc."""
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
    """Split a comma-separated list of origins, in lower case as browsers send them."""
    return frozenset(part.strip().lower() for part in text.split(",") if part.strip())


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def networks_of(text: str) -> tuple[Network, ...]:
    """Parse a comma-separated list of networks and addresses. Raises ValueError."""
    return tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())


def targets_of(text: str) -> tuple[frozenset[str], tuple[Network, ...]]:
    """Parse a comma-separated list of host names, networks and addresses. Returns names in lower case, and networks.
    Raises ValueError."""
    hosts: set[str] = set()
    networks: list[Network] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            networks += networks_of(part)
        except ValueError:
            if not part.replace("-", "").replace(".", "").isalnum():
                raise ValueError(f"{part!r} is not an address, network or host name") from None
            hosts.add(part.lower())
    return frozenset(hosts), tuple(networks)


def _url(value: SecretStr | None, schemes: set[str], *, several: bool = False) -> SecretStr | None:
    """Check a URL. `several`: it may have several hosts, separated by commas."""
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
