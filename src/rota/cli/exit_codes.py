"""The meaning of exit codes, and how errors are printed.

Errors go to stderr: a sentence, then a hint. Passwords of database URLs are never printed.
"""

from __future__ import annotations

import json
import traceback
from urllib.parse import quote, unquote, urlsplit

import click

from rota import errors
from rota.cli import render
from rota.core.redaction import without_secrets
from rota.core.suggest import close_names, hint_of
from rota.errors import RotaError, UsageError

OK, FAILED, USAGE, DATABASE, NOT_FOUND, CONFLICT, TIMEOUT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
PARTIAL, BUDGET = 7, 8
NAMED_MAX = 3  # commands that a hint names if none is near; `--help` lists more

MEANINGS: dict[int, str] = {
    OK: "success",
    FAILED: "the operation failed, or the awaited run did not complete",
    USAGE: "bad usage: an option, a setting or an input is wrong",
    DATABASE: "the database cannot be used",
    NOT_FOUND: "there is no such run, workflow, schedule, automation or pipeline",
    CONFLICT: "the run, schedule or automation is in the wrong state",
    TIMEOUT: "timed out while waiting; the run continues",
    PARTIAL: "a pipeline has a result, but some of its items failed",
    BUDGET: "the budget of a pipeline was used up before its end",
    INTERRUPTED: "interrupted with Ctrl-C, or the pipeline was cancelled",
}

EXITS = {
    kind.code: kind.exit_code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, RotaError)
}


class TookTooLong(RotaError):
    """A wait took longer than --timeout."""

    code = "timeout"
    exit_code = TIMEOUT
    hint = "Nothing was changed; try again, or with a longer --timeout."


class Interrupted(RotaError):
    """The user pressed Ctrl-C."""

    code = "interrupted"
    exit_code = INTERRUPTED
    hint = "Nothing else was changed."


class NoSuchCommand(click.UsageError):
    """An unknown command, with the nearest commands, or all of them if there are few."""

    def __init__(self, name: str, known: list[str], context: click.Context) -> None:
        super().__init__(f"there is no command {name!r}", context)
        few = known if len(known) <= NAMED_MAX else []
        self.possibilities = close_names(name, known) or few


def as_ours(error: BaseException) -> RotaError:
    """Any error as a RotaError, which has a sentence, a code and a hint."""
    if isinstance(error, RotaError):
        return error
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return Interrupted("interrupted")
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        return UsageError(error.format_message(), hint="See `rota --help`.")
    if isinstance(error, OSError) and error.filename is not None:
        return UsageError(
            f"{error.filename} cannot be used: {error.strerror}", hint="Check the path."
        )
    return RotaError(
        f"unexpected {type(error).__name__}: {error}",
        hint="This should not happen. Repeat with --debug for the traceback, and report it.",
    )


def _usage(error: click.UsageError) -> RotaError:
    path = error.ctx.command_path if error.ctx else "rota"
    near = getattr(error, "possibilities", None)
    if near and isinstance(error, click.NoSuchOption):
        near = close_names(error.option_name, near) or near
    message = error.format_message() if not near else error.message
    if isinstance(error, click.NoSuchOption):  # versions of click word it differently
        message = f"no such option '{error.option_name}'"
    hint = hint_of(sorted(near or ()), f"See `{path} --help`.")
    return UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


def report(error: BaseException, *, as_json: bool, debug: bool, url: str | None) -> int:
    """Print an error on stderr, and return its exit code."""
    ours = as_ours(error)
    if debug and not isinstance(error, click.ClickException | click.Abort):
        click.echo(hide("".join(traceback.format_exception(error)), url), err=True, nl=False)
    message, hint = hide(ours.message, url), hide(ours.advice, url)
    if as_json:
        fields = {"code": ours.code, "message": message, "hint": hint}
        click.echo(json.dumps({"error": fields}, ensure_ascii=False), err=True)
    else:
        sentence, _, details = message.partition("\n")
        end = "" if sentence.endswith((":", "?")) else "."
        render.say(f"Error: {sentence.rstrip('.')}{end}", err=True)
        if details:  # the place, with a caret under it, or a list
            click.echo(details, err=True)
        render.say(f"Hint: {hint}", err=True)
    return ours.exit_code


def hide(text: str, url: str | None) -> str:
    """`text` without the password of `url`, plain or quoted, and without values of secret fields of
    the run that the text is about."""
    text = without_secrets(text)
    secret = _password(url or "")
    plain = unquote(secret)
    # The longest first: a form may be a part of another.
    for form in sorted({secret, plain, quote(plain), quote(plain, safe="")}, key=len, reverse=True):
        text = text.replace(form, "***") if form else text
    return text


def _password(url: str) -> str:
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    # In a URL that cannot be parsed, all between : and @ may be a password.
    return password or url.partition("//")[2].rpartition("@")[0].partition(":")[2]
