"""`rota token …` and `rota audit` on both databases."""

from __future__ import annotations

from tests.cli.kit import Shell


def test_a_token_is_made_listed_and_revoked_and_each_is_on_record(either: Shell) -> None:
    either.start("add", "n=1")
    made = either.run("token", "create", "ci", "--role", "operate", "--expires-in", "90d")
    assert made.stdout.startswith("rota_")
    assert len(made.stdout.splitlines()) == 1, "stdout is the token and nothing else"
    assert "not shown again" in made.stderr
    [row] = either.json("token", "list")
    assert (row["name"], row["role"]) == ("ci", "operate")
    assert made.stdout.strip() not in either.run("token", "list").stdout
    assert "already" in either.error("token", "create", "ci", code=2)
    assert either.run("token", "revoke", "ci").stdout == "token ci is revoked\n"
    assert "no valid token" in either.error("token", "revoke", "ci", code=4)
    entries = either.json("audit")
    assert [(one["verb"], one["target"]) for one in entries] == [
        ("token.revoke", "ci"),
        ("token.create", "ci"),
    ]
    assert entries[1]["detail"] == {"role": "operate"}
    assert (
        "token.create" in either.run("audit", "--limit", "1", "--before", entries[0]["id"]).stdout
    )
