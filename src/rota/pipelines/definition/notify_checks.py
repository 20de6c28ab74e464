"""The rules of `notify` that types cannot express: addresses that work, a channel per receiver."""

from __future__ import annotations

from typing import Any

from rota.notifications.definition import NotificationTable, channel_problems
from rota.notifications.receivers import Notice, Notify
from rota.pipelines.definition.problems import Path, ProblemReport, path_text

EVENTS = ("success", "failure", "recovery", "missed")
_KEYS = {"secret_env": "secretEnv", "pass_env": "passEnv"}


def check_notify(notify: Notify, report: ProblemReport) -> None:
    """Check every receiver; a message that could never go out is reported before it has to."""
    for event in EVENTS:
        given: Any = getattr(notify, f"on_{event}")
        path: Path = ("schedule", "notify", f"on_{event}")
        if isinstance(given, list):
            for index, each in enumerate(given):
                _check_receiver(each, (*path, index), report)
        elif given is not None:
            _check_receiver(given, path, report)
    _report(NotificationTable(ping=notify.ping), ("schedule", "notify"), report)


def _check_receiver(given: str | Notice, path: Path, report: ProblemReport) -> None:
    if isinstance(given, str):
        for _, problem in channel_problems(Notice(webhook=given)):
            report.error(path, f"{path_text(path)} {problem}")
        return
    if given.webhook is None and given.command is None:
        report.error(
            path, f"{path_text(path)} names no receiver: give webhook or command", at_key=True
        )
    _report(given, path, report)


def _report(channel: Notice | NotificationTable, path: Path, report: ProblemReport) -> None:
    for (option, *rest), problem in channel_problems(channel):
        where = (*path, _KEYS.get(str(option), option), *rest)
        report.error(where, f"{path_text(where)} {problem}")
