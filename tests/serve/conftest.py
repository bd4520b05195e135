"""One server for all tests that do not need settings of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serve.serving import Running, running


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """A server with default limits."""
    with running() as server:
        yield server
