"""One test over a table of hundreds of rows. An id for each row would cost more than its check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
SHOWN_MAX = 20


def for_each(
    rows: Iterable[T], name: Callable[[T], object] = str
) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Check every row in one test, which names each row that fails and why."""

    def over(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            failed = []
            for row in rows:
                try:
                    check(row)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"{name(row)}: {type(error).__name__}: {error}")
            shown = "\n".join(failed[:SHOWN_MAX])
            assert not failed, f"{len(failed)} rows fail:\n{shown}"

        # functools.wraps would show pytest the argument of `check`, as a fixture to look for.
        test.__name__, test.__module__ = check.__name__, check.__module__
        return test

    return over
