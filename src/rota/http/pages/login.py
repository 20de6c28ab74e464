"""The page that asks for a token. It needs no identity and reads nothing from the database."""

from __future__ import annotations

from http import HTTPStatus

from rota.errors import BadToken
from rota.http.login import sign_in
from rota.http.pages.text import sentence
from rota.http.pages.view import environment
from rota.http.request import Answer, Html, Redirect, WebRequest

LOCAL_PEERS = ("127.0.0.1", "::1")


async def show(request: WebRequest) -> Answer:
    """The form."""
    return _page(request, request.query.get("next"), "", HTTPStatus.OK)


async def enter(request: WebRequest) -> Answer:
    """Begin a session, and go where the person wanted to go."""
    form = request.form()
    wanted = form.get("next")
    try:
        cookies = await sign_in(request, request.client.sessions.open(form.get("token").strip()))
    except BadToken as error:
        wrong = f"{sentence(error.message)} {error.advice}"
        return _page(request, wanted, wrong, HTTPStatus.UNAUTHORIZED)
    return Redirect(own_path(wanted), cookies=cookies)


async def offer(request: WebRequest) -> Answer:
    """The button that uses up a login link. Whether the link is valid shows when it is pressed."""
    namespace = request.client.settings.namespace
    return Html(environment().render_template("login_link.html", namespace=namespace))


def own_path(wanted: str) -> str:
    """The address to go to, if it is one of this site: `//host` and `/\\host` are not."""
    is_own = wanted.startswith("/") and wanted[1:2] not in ("/", "\\") and wanted.isprintable()
    return wanted if is_own else "/"


def _page(request: WebRequest, wanted: str, wrong: str, status: int) -> Html:
    text = environment().render_template(
        "login.html",
        next=own_path(wanted),
        wrong=wrong,
        namespace=request.client.settings.namespace,
        is_https=request.site.logins.cookie_name.startswith("__Host-"),
        is_local=request.peer in LOCAL_PEERS,
    )
    return Html(text, status=status)
