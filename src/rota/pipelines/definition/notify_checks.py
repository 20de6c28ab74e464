"""The rules of `notify` that types cannot express: addresses that can be called, receivers that are
one."""

from __future__ import annotations

from typing import Any

from rota.notifications.receivers import Notice, Notify
from rota.notifications.webhook import ENV, is_address, is_variable
from rota.pipelines.definition.problems import Path, ProblemReport, path_text

EVENTS = ("success", "failure", "recovery", "missed")


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
    if notify.ping is not None:
        _check_address(notify.ping, ("schedule", "notify", "ping"), report)


def _check_receiver(given: str | Notice, path: Path, report: ProblemReport) -> None:
    if isinstance(given, str):
        _check_address(given, path, report)
        return
    if given.webhook is None and given.command is None:
        report.error(
            path, f"{path_text(path)} names no receiver: give webhook or command", at_key=True
        )
    if given.webhook is not None:
        _check_address(given.webhook, (*path, "webhook"), report)
    if given.command is not None and not given.command.strip():
        report.error((*path, "command"), f"{path_text((*path, 'command'))} is empty")
    _check_pass_env(given, (*path, "passEnv"), report)
    if given.secret_env is None:
        return
    where: Path = (*path, "secretEnv")
    if given.webhook is None:
        report.error(where, "secretEnv signs a webhook, and there is none", at_key=True)
    if not is_variable(given.secret_env):
        report.error(where, "secretEnv is the name of an environment variable, not the key itself")


def _check_pass_env(given: Notice, path: Path, report: ProblemReport) -> None:
    if given.pass_env and given.command is None:
        report.error(path, "passEnv is for a command, and there is none", at_key=True)
    for index, name in enumerate(given.pass_env):
        if not is_variable(name):
            message = f"{path_text((*path, index))} is not the name of an environment variable"
            report.error((*path, index), message)


def _check_address(text: str, path: Path, report: ProblemReport) -> None:
    if is_address(text):
        return
    if text.startswith(ENV):
        report.error(path, f"{path_text(path)}: env: is followed by the name of a variable")
    else:
        detail = "is not an address; write it as https://host/path, or env:NAME"
        report.error(path, f"{path_text(path)} {detail}")
