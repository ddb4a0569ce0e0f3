"""Settings: nonsense refuses to start, and the message says which and why."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from app.base.keys import digest_of
from app.errors import ConfigurationError
from app.settings import SECRETS, Settings, is_loopback

ROOT = Path(__file__).parents[1]


def refused(**environ: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        Settings.from_env({f"HOLDFAST_{name}": value for name, value in environ.items()})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_nothing_set_is_a_service_for_this_machine_only() -> None:
    settings = Settings.from_env({})
    assert (settings.host, settings.port, settings.database_url) == ("127.0.0.1", 8080, None)
    assert settings.data_dir == Path("var")
    assert settings.max_requests_per_key == 1_000, "one client must not be able to take all there is"


def test_other_variables_and_those_of_the_tests_are_left_alone() -> None:
    environ = {"PATH": "/bin", "HOLDFAST_TEST_DATABASE_URL": "x", "HOLDFAST_PORT": ""}
    assert Settings.from_env(environ) == Settings.from_env({})


def test_a_shell_that_is_set_up_for_the_client_or_for_compose_starts_the_service_too() -> None:
    sources = [*(ROOT / "sdk/src").rglob("*.py"), *(ROOT / "spark").rglob("*.py"), ROOT / "docker-compose.yml"]
    read = {name for file in sources for name in re.findall(r"\bHOLDFAST_[A-Z_]+", file.read_text())} - {"HOLDFAST_"}
    others = {name for name in read if name.removeprefix("HOLDFAST_").lower() not in Settings.model_fields}
    assert others >= {"HOLDFAST_URL", "HOLDFAST_API_KEY", "HOLDFAST_NODE", "HOLDFAST_ADMIN_KEY"}
    assert Settings.from_env(dict.fromkeys(others, "http://127.0.0.1:9")) == Settings.from_env({})


def test_a_misspelt_name_suggests_the_right_one() -> None:
    assert refused(PROT="80") == "HOLDFAST_PROT is not a setting; did you mean HOLDFAST_PORT?"
    assert refused(ZZZZZZ="80") == "HOLDFAST_ZZZZZZ is not a setting"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PORT", "eighty", "integer"),
        ("PORT", "65536", "less than or equal to 65535"),
        ("HOT_CONNECTIONS", "1", "greater than or equal to 2"),
        ("STOP_SECONDS", "0", "greater than or equal to 0.5"),
        ("LOG_LEVEL", "loud", "'debug'"),
        ("PREPARED_STATEMENTS", "perhaps", "boolean"),
        ("DATABASE_URL", "mysql://localhost/x", "postgres://"),
        ("DATABASE_URL", "postgresql://localhost:port/x", "postgres://"),
        ("DATABASE_URL", "postgresql://one:5432,two:port/x", "postgres://"),
        ("REDIS_URL", "localhost:6379", "redis://"),
        ("REDIS_URL", "redis://one:6379,two:6379", "redis://"),
    ],
)
def test_a_value_that_can_not_be_is_named_with_its_reason(name: str, value: str, why: str) -> None:
    message = refused(**{name: value})
    assert message.startswith(f"HOLDFAST_{name}: ")
    assert why in message


def test_a_database_may_be_at_several_addresses() -> None:
    """Of which one is the primary: what a failover leaves to the URL."""
    url = "postgresql://u:p@one:5432,[::1]:5433,three/x?target_session_attrs=read-write"
    settings = Settings.from_env({"HOLDFAST_DATABASE_URL": url})
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == url


def test_every_fault_is_named_at_once() -> None:
    message = refused(PORT="x", HOT_CONNECTIONS="y")
    assert "HOLDFAST_PORT: " in message
    assert "HOLDFAST_HOT_CONNECTIONS: " in message


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.test", False)],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_secrets_are_not_shown() -> None:
    settings = Settings.from_env(
        {"HOLDFAST_DATABASE_URL": "postgresql://u:topsecret@localhost/x", "HOLDFAST_API_KEYS": "topsecret"}
    )
    assert "topsecret" not in repr(settings)
    assert "topsecret" not in refused(DATABASE_URL="mysql://u:topsecret@localhost/x")


def test_the_text_of_a_key_is_not_kept() -> None:
    settings = Settings.from_env({"HOLDFAST_API_KEYS": "topsecret:read"})
    assert [key.digest for key in settings.api_keys] == [digest_of(b"topsecret")]
    assert b"topsecret" not in pickle.dumps(settings)


def test_whatever_is_secret_may_come_in_a_file(tmp_path: Path) -> None:
    kinds = {name: str(field.annotation) for name, field in Settings.model_fields.items()}
    assert {name for name, kind in kinds.items() if "SecretStr" in kind} | {"api_keys"} == set(SECRETS)
    file = tmp_path / "url"
    file.write_text("postgresql://u:topsecret@localhost/x\n")
    settings = Settings.from_env({"HOLDFAST_DATABASE_URL_FILE": str(file)})
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://u:topsecret@localhost/x"


def test_keys_in_a_file_may_have_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first:read\r\nsecond:rw:mail.|images.\n\nthird,fourth\n")
    found = Settings.from_env({"HOLDFAST_API_KEYS_FILE": str(file)}).api_keys
    assert [key.digest for key in found] == [digest_of(text) for text in (b"first", b"second", b"third", b"fourth")]
    assert found[1].prefixes == ("mail.", "images.")


def test_a_file_that_says_nothing_refuses_to_start(tmp_path: Path) -> None:
    """An empty one must not open a service that was meant to be closed."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff")
    assert refused(API_KEYS_FILE=str(tmp_path / "empty")) == f"HOLDFAST_API_KEYS_FILE: {tmp_path / 'empty'} is empty"
    assert "can't be read" in refused(API_KEYS_FILE=str(tmp_path / "bytes"))
    assert "No such file" in refused(API_KEYS_FILE=str(tmp_path / "none"))
    both = refused(API_KEYS="topsecret", API_KEYS_FILE=str(tmp_path / "empty"))
    assert both == "HOLDFAST_API_KEYS and HOLDFAST_API_KEYS_FILE are both set"
    assert "is not a setting" in refused(PORT_FILE=str(tmp_path / "empty"))


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
