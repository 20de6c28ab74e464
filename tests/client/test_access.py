"""Tokens, sessions, login links and the audit, on both databases."""

from __future__ import annotations

import pytest

from rota.client.client import Client
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.errors import BadInput, BadToken, UnknownToken
from rota.settings import Settings
from rota.store.access import audit as store
from rota.testing import VirtualClock
from tests.kit.builders import NOW, sql

HOSTILE = ["", "a\0b", "\ud800", "x" * 300]


def client_of(url: str) -> Client:
    return Client(url, clock=VirtualClock(NOW), migrate=True)


def set_clock(client: Client, at: int) -> None:
    assert isinstance(client.clock, VirtualClock)
    client.clock.jump((at - client.clock.now()) / SECOND)


async def test_a_token_is_shown_once_and_stored_as_a_digest(database_url: str) -> None:
    async with client_of(database_url) as client:
        made = await client.tokens.create("ci", role="operate", expires_in="90d")
        head, token_id, secret = made.text.split("_", 2)
        assert (head, token_id, len(secret)) == ("rota", made.token.id, 43)
        [stored] = await client.tokens.list()
        assert stored == made.token
        [(row,)] = await sql(client.connection.database, "select digest from api_tokens")
        assert secret not in row
        found = await client.tokens.authenticate(made.text)
        assert (found.name, found.role, found.expires_at) == ("ci", "operate", NOW + 90 * DAY)


async def test_a_wrong_expired_revoked_or_foreign_token_is_refused(database_url: str) -> None:
    async with client_of(database_url) as client:
        made = await client.tokens.create("ci", expires_in="1h")
        other = await client.tokens.create("other")
        mixed = made.text[:18] + other.text[18:]
        for text in (
            *HOSTILE,
            mixed,
            f"{made.text}x",
            made.text.upper(),
            made.text[:-1] + "\u0661",
        ):
            with pytest.raises(BadToken):
                await client.tokens.authenticate(text)
        elsewhere = Client(database_url, settings=Settings(namespace="b"), clock=client.clock)
        async with elsewhere:
            with pytest.raises(BadToken, match="not known"):
                await elsewhere.tokens.authenticate(made.text)
            with pytest.raises(UnknownToken, match="no valid token"):
                await elsewhere.tokens.revoke("ci")
        await client.tokens.revoke("other")
        with pytest.raises(BadToken, match="other was revoked"):
            await client.tokens.authenticate(other.text)
        set_clock(client, NOW + HOUR)
        with pytest.raises(BadToken, match="ci has expired"):
            await client.tokens.authenticate(made.text)


async def test_a_name_is_taken_until_its_token_is_revoked(database_url: str) -> None:
    async with client_of(database_url) as client:
        first = await client.tokens.create("ci")
        with pytest.raises(BadInput, match="already"):
            await client.tokens.create("ci")
        await client.tokens.revoke(first.token.id)
        assert (await client.tokens.create("ci")).token.id != first.token.id
        with pytest.raises(UnknownToken, match="no valid token 'cl'"):
            await client.tokens.revoke("cl")
        for name in HOSTILE:
            with pytest.raises(BadInput):
                await client.tokens.create(name)
        with pytest.raises(BadInput, match="not a role"):
            await client.tokens.create("x", role="root")
        with pytest.raises(BadInput, match="not in the future"):
            await client.tokens.create("x", expires_in="0s")


async def test_a_use_is_written_at_most_once_a_minute(database_url: str) -> None:
    async with client_of(database_url) as client:
        made = await client.tokens.create("ci")
        for at, noted in ((NOW, NOW), (NOW + MINUTE, NOW), (NOW + MINUTE + 1, NOW + MINUTE + 1)):
            set_clock(client, at)
            await client.tokens.authenticate(made.text)
            assert (await client.tokens.list())[0].last_used_at == noted


async def test_a_session_ends_when_idle_at_its_end_or_with_its_token(database_url: str) -> None:
    async with client_of(database_url) as client:
        made = await client.tokens.create("ci", role="admin")
        opened = await client.sessions.open(made.text)
        assert (await client.sessions.get(opened.secret)).role == "admin"
        set_clock(client, NOW + 11 * HOUR)
        await client.sessions.get(opened.secret)  # seen, so that it is not idle
        set_clock(client, NOW + 22 * HOUR)
        await client.sessions.get(opened.secret)
        set_clock(client, NOW + 34 * HOUR)
        with pytest.raises(BadToken, match="ended"):
            await client.sessions.get(opened.secret)
        again = await client.sessions.open(made.text)
        await client.tokens.revoke("ci")
        with pytest.raises(BadToken):
            await client.sessions.get(again.secret)
        with pytest.raises(BadToken):
            await client.sessions.open(made.text)


async def test_a_login_link_works_once_and_for_a_minute(database_url: str) -> None:
    async with client_of(database_url) as client:
        secret, late = await client.sessions.link(), await client.sessions.link()
        opened = await client.sessions.redeem(secret)
        assert (opened.session.role, opened.session.token_id) == ("admin", None)
        for used in (secret, "", "\0", "\ud800"):
            with pytest.raises(BadToken):
                await client.sessions.redeem(used)
        set_clock(client, NOW + MINUTE)
        with pytest.raises(BadToken):
            await client.sessions.redeem(late)
        await client.sessions.close(opened.secret)
        await client.sessions.close(opened.secret)
        with pytest.raises(BadToken):
            await client.sessions.get(opened.secret)


async def test_the_audit_lists_the_newest_first_and_takes_hostile_texts(database_url: str) -> None:
    async with client_of(database_url) as client:
        for number, target in enumerate(["run-1", "a\0b\ud800", "x" * 5000]):
            await client.audit.record(
                "ci", "cancel", target, request_id=f"r{number}", detail={"n": 1}
            )
        newest, middle, oldest = await client.audit.list()
        assert [oldest.target, middle.target, len(newest.target)] == ["run-1", "a\ufffdb?", 1000]
        assert (oldest.who, oldest.verb, oldest.request_id, oldest.detail, oldest.at) == (
            "ci", "cancel", "r0", '{"n":1}', NOW,
        )  # fmt: skip
        assert await client.audit.list(before=middle.id) == [oldest]
        for bad in (0, 1001, 2**64, True):
            with pytest.raises(BadInput):
                await client.audit.list(limit=bad)
        for name in HOSTILE[:3]:
            with pytest.raises(BadInput):
                await client.audit.list(before=name)


async def test_what_ended_is_pruned_and_what_is_valid_stays(database_url: str) -> None:
    async with client_of(database_url) as client:
        old = await client.tokens.create("old")
        await client.tokens.create("kept")
        await client.sessions.open(old.text)
        await client.sessions.link()
        await client.audit.record("ci", "cancel", "run")
        await client.tokens.revoke("old")
        later = NOW + 40 * DAY
        set_clock(client, later)
        await client.audit.record("ci", "retry", "run")
        await client.connection.database.write(
            store.prune, namespace="default", now=later, before=later - 30 * DAY, limit=10
        )
        assert [one.name for one in await client.tokens.list()] == ["kept"]
        assert [one.verb for one in await client.audit.list()] == ["retry"]
        for table in ("sessions", "login_links"):
            assert await sql(client.connection.database, f"select count(*) from {table}") == [(0,)]
