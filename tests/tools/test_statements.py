"""Parameters of SQL: colons in strings, comments, slices and names are none."""

from __future__ import annotations

import pytest

from rota.errors import UsageError
from rota.tools.statements import statement

NONE = [
    "select 'a:b'", "select 'it''s :a'", 'select ":a"', "select 1 -- :a", "select /* :a */ 1",
    "select /* :a /* :b */ :c */ 1", "select /* /* /* :a */ */ :b */ 1",
    r"select E'\':a'", r"select e'\\' || E'x\':a'", r"select E'a''\':b'",
    "select $$:a$$", "select $x$ :a $$ :b $x$", "select a::int", "select x[a:b]", "select x[1:n]",
    "select x[a : b]", "select x[f(y[1:2]):b]", "select `a:b`", "select `a``:b`",
    "select U&'\\0061:b'", "select [a:b] from t", "select x[ '] :a' : b]",
]  # fmt: skip


@pytest.mark.parametrize("sql", NONE)
def test_a_colon_that_is_part_of_something_else_is_no_parameter(sql: str) -> None:
    assert statement(sql).names == ()
    assert statement(sql).numbered == sql


SOME = {
    "select :a, :b, :a": ("a", "b"),
    "select :a::int": ("a",),
    "select cast(:a as text)--:b": ("a",),
    "select 'x' || :a || /* :b */ 'y:c'": ("a",),
    r"select 'a\' || :b": ("b",),  # a backslash is plain in a plain string
    r"select type'\' || :b": ("b",),
    "select f(:a)": ("a",),
    "select x[1] + :a": ("a",),
    "select x[:n]": ("n",),
    "select -- :x\n :a": ("a",),
    "insert into t values (:a,:b)": ("a", "b"),
    "select case when a=:a then ':b' end": ("a",),
}


@pytest.mark.parametrize("sql", SOME)
def test_a_parameter_is_found_wherever_a_value_may_be(sql: str) -> None:
    assert statement(sql).names == SOME[sql]


TRIGGER = """create trigger if not exists log after insert on orders begin
    insert into events (id, kind) values (new.id, case when new.n > 1 then 'many' else 'one' end);
    update counts set n = n + 1;
end"""


def test_a_trigger_is_one_statement() -> None:
    for sql in (TRIGGER, f"{TRIGGER};", TRIGGER.replace("create", "CREATE temp")):
        assert statement(sql).names == ()


@pytest.mark.parametrize("sql", [
    "select 1; select 2", f"{TRIGGER}; drop table orders", "create table t (a); drop table t",
    "create table trigger_x (a); drop table t", "select 1; -- x\n drop table t",
    "create trigger x after insert on t begin delete from t; end; commit",
    "create view trigger as select 1; drop table t",
])  # fmt: skip
def test_more_than_one_statement_is_refused(sql: str) -> None:
    with pytest.raises(UsageError, match="more than one statement"):
        statement(sql)


@pytest.mark.parametrize("sql", ["commit", "/* a /* b */ c */ commit", "-- x\nROLLBACK", " begin"])
def test_the_transaction_is_not_for_a_statement(sql: str) -> None:
    with pytest.raises(UsageError, match="transaction of its own"):
        statement(sql)
