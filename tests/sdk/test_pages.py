"""The pages say what is so: their Python runs as it stands, and prints what they say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.api.keyring import Services
from tests.sdk.conftest import Serve
from tests.sdk.pages import ROOT, run_page

PAGES = [
    *("docs/quick-start.md", "docs/sdk.md", "docs/worker.md", "docs/sql-in-your-transaction.md", "docs/objects.md"),
    "sdk/README.md",
]


@pytest.mark.parametrize("page", PAGES)
async def test_the_examples_of_a_page(
    serve: Serve, new_database: Callable[[], Awaitable[str]], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await Services.make(serve, new_database)
    service = await services.start()
    monkeypatch.setenv("DATABASE_URL", services.url)
    await run_page((ROOT / page).read_text(), service.url)
