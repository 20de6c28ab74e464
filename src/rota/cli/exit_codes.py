"""The end of the process: one table from error code to exit code, one way to print.

Errors go to stderr: a sentence, then a hint. Passwords of database URLs never do.
"""

from __future__ import annotations

import json
import traceback
from urllib.parse import quote, unquote, urlsplit

import click

from rota.core.suggest import close_names, hint_of
from rota.errors import RotaError

OK, FAILED, USAGE, DATABASE, NOT_FOUND, CONFLICT, TIMEOUT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
PARTIAL, BUDGET = 7, 8

MEANINGS: dict[int, str] = {
    OK: "success",
    FAILED: "the operation failed, for example the awaited run did",
    USAGE: "bad usage: an option, a setting or an input is wrong",
    DATABASE: "the database cannot be used",
    NOT_FOUND: "there is no such run, workflow, schedule, automation or pipeline",
    CONFLICT: "the run, schedule or automation is in the wrong state",
    TIMEOUT: "timed out while waiting; the run continues",
    PARTIAL: "a pipeline has a result, but some of its items failed",
    BUDGET: "the budget of a pipeline was used up before its end",
    INTERRUPTED: "interrupted with Ctrl-C, or the pipeline was cancelled",
}

# Every code of `rota.errors`, and the two that only a terminal knows.
EXITS: dict[str, int] = {
    "error": FAILED,
    "usage": USAGE,
    "bad_setting": USAGE,
    "bad_input": USAGE,
    "bad_token": USAGE,
    "stale_cursor": USAGE,
    "payload_too_big": USAGE,
    "not_serialisable": USAGE,
    "unstorable": USAGE,
    "bad_schedule": USAGE,
    "unknown_zone": USAGE,
    "bad_pipeline": USAGE,
    "not_trusted": USAGE,
    "bad_automation": USAGE,
    "bad_reservation": USAGE,
    "not_allowed": USAGE,
    "unknown_option": USAGE,
    "unknown_workflow": NOT_FOUND,
    "unknown_run": NOT_FOUND,
    "unknown_schedule": NOT_FOUND,
    "unknown_automation": NOT_FOUND,
    "unknown_pipeline": NOT_FOUND,
    "unknown_input": NOT_FOUND,
    "unknown_queue": NOT_FOUND,
    "unknown_token": NOT_FOUND,
    "changed_since": CONFLICT,
    "already_started": CONFLICT,
    "wrong_state": CONFLICT,
    "scheduler_locked": CONFLICT,
    "store": DATABASE,
    "bad_database_url": DATABASE,
    "missing_extra": DATABASE,
    "store_unreachable": DATABASE,
    "store_busy": DATABASE,
    "store_full": DATABASE,
    "store_read_only": DATABASE,
    "store_corrupt": DATABASE,
    "store_held": DATABASE,
    "store_io": DATABASE,
    "store_no_shared_memory": DATABASE,
    "store_gone": DATABASE,
    "schema_too_new": DATABASE,
    "schema_missing": DATABASE,
    "lease_lost": CONFLICT,
    "run_failed": FAILED,
    "run_cancelled": FAILED,
    "run_crashed": FAILED,
    "step_failed": FAILED,
    "step_timeout": FAILED,
    "run_timeout": FAILED,
    "stranded": FAILED,
    "bad_reply": FAILED,
    "items_failed": FAILED,
    "budget_spent": BUDGET,
    "failure": FAILED,
    "transient": FAILED,
    "auth": FAILED,
    "permission": FAILED,
    "fatal": FAILED,
    "not_sent": FAILED,
    "rejected": FAILED,
    "read_failed": FAILED,
    "truncated_reply": FAILED,
    "empty_reply": FAILED,
    "filtered_reply": FAILED,
    "outcome_unknown": FAILED,
    "timeout": TIMEOUT,
    "interrupted": INTERRUPTED,
}


class TookTooLong(RotaError):
    """The caller did not want to wait any longer."""

    code = "timeout"
    hint = "Nothing was changed; ask again, or with a longer --timeout."


class Interrupted(RotaError):
    """The user pressed Ctrl-C."""

    code = "interrupted"
    hint = "Nothing else was changed."


class NoSuchCommand(click.UsageError):
    """An unknown command; knows the nearest ones, or all."""

    def __init__(self, name: str, known: list[str], context: click.Context) -> None:
        super().__init__(f"there is no command {name!r}", context)
        self.possibilities = close_names(name, known) or known


def as_ours(error: BaseException) -> RotaError:
    """Any error as one with a sentence, a code and a hint."""
    if isinstance(error, RotaError):
        return error
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return Interrupted("interrupted")
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        return _Usage(error.format_message(), hint="See `rota --help`.")
    return RotaError(
        f"unexpected {type(error).__name__}: {error}",
        hint="This should not happen. Repeat with --debug for the traceback, and report it.",
    )


class _Usage(RotaError):
    code = "usage"


def _usage(error: click.UsageError) -> RotaError:
    path = error.ctx.command_path if error.ctx else "rota"
    near = getattr(error, "possibilities", None)
    if near and isinstance(error, click.NoSuchOption):
        near = close_names(error.option_name, near) or near
    message = error.format_message() if not near else error.message
    if isinstance(error, click.NoSuchOption):  # versions of click word it differently
        message = f"no such option '{error.option_name}'"
    hint = hint_of(sorted(near or ()), f"See `{path} --help`.")
    return _Usage(message[:1].lower() + message[1:].rstrip("."), hint=hint)


def report(error: BaseException, *, as_json: bool, debug: bool, url: str | None) -> int:
    """Say on stderr what went wrong, and return the exit code for it."""
    ours = as_ours(error)
    if debug and not isinstance(error, click.ClickException | click.Abort):
        click.echo(hide("".join(traceback.format_exception(error)), url), err=True, nl=False)
    message, hint = hide(ours.message, url), hide(ours.advice, url)
    if as_json:
        said = {"code": ours.code, "message": message, "hint": hint}
        click.echo(json.dumps({"error": said}, ensure_ascii=False), err=True)
    else:
        sentence, _, picture = message.partition("\n")
        end = "" if sentence.endswith((":", "?")) else "."
        click.echo(f"Error: {sentence.rstrip('.')}{end}", err=True)
        if picture:  # the place, with a caret under it, or a list
            click.echo(picture, err=True)
        click.echo(f"Hint: {hint}", err=True)
    return EXITS.get(ours.code, FAILED)


def hide(text: str, url: str | None) -> str:
    """`text` without the password that `url` holds, as it is or quoted. Values of secret fields of
    the run that the text is about are hidden too."""
    from rota.core.redaction import without_secrets

    text = without_secrets(text)
    secret = _password(url or "")
    plain = unquote(secret)
    # The longest first: a form may be a part of another.
    for form in sorted({secret, plain, quote(plain), quote(plain, safe="")}, key=len, reverse=True):
        text = text.replace(form, "***") if form else text
    return text


def _password(url: str) -> str:
    try:
        found = urlsplit(url).password
    except ValueError:
        found = None
    # Not a URL that can be taken apart: all between // and @ may be meant as a secret.
    return found or url.partition("//")[2].rpartition("@")[0].partition(":")[2]
