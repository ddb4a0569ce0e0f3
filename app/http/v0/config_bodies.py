"""What the v0 routes show of a topic's configuration. docs/semantics.md, section 24."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import NODEFAULT, UNSET, UnsetType

from app.kernel.schemas.schemas import Text
from app.kernel.topics.policy import T, extended
from app.kernel.topics.settings import DECLARED, Config
from app.kernel.topics.webhooks import Webhook

SETTINGS: Final = tuple(name for name, one in DECLARED.items() if one.setting.v0)


def _showing_settings(of: type[T]) -> type[T]:
    shown = {name: DECLARED[name] for name in SETTINGS}
    types = {name: one.shows | None if one.default is None else one.shows for name, one in shown.items()}
    return extended(of, {name: (of_it, NODEFAULT) for name, of_it in types.items()})


@_showing_settings
class ResolvedConfig(msgspec.Struct, kw_only=True):
    """A topic's configuration, defaults filled in and clamps applied."""

    durable: bool
    webhook: Webhook | UnsetType = UNSET
    schema: dict[str, Any] | list[Any] | str | bool | UnsetType = UNSET
    schema_format: Literal["json_schema", "avro"] | UnsetType = UNSET


def config_shown(config: Config, schema: Text | None = None) -> Any:
    """A ResolvedConfig, in the order in which settings are declared."""
    first, *others = SETTINGS
    shown = {name: getattr(config, name) for name in (first, "durable", *others)}
    if schema is not None:
        shown |= {"schema": msgspec.Raw(schema.schema.encode()), "schema_format": schema.format}
    if config.webhook is None:
        del shown["webhook"]
    return shown
