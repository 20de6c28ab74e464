"""The check of workflow code: names, workflows, helpers, comments and hostile sources."""

from __future__ import annotations

import time

import pytest

from rota.core.workflows.replay_check import SourceReport, check_source, source_text
from rota.errors import UsageError
from tests.core.workflows.kit import check, found, in_workflow

# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("imports", "code"),
    [
        ("import random as r", "r.random()"),
        ("from random import random", "random()"),
        ("from time import time as clock", "clock()"),
        ("from datetime import datetime as dt", "dt.now()"),
        ("import datetime as d", "d.datetime.now()"),
        ("import os.path", "os.path.exists('x')"),
        ("from os import environ", "environ"),
        ("import random\nrng = random", "rng.random()"),
        ("from datetime import datetime\nclock = datetime.now", "clock()"),
        ("try:\n    import random\nexcept ImportError:\n    random = None", "random.random()"),
        ("from rota import random\nimport random", "random.random()"),
        ("", "import random\n    random.random()"),
        ("", "from time import time\n    (lambda: time())()"),
    ],
)
def test_an_alias_is_resolved(imports: str, code: str) -> None:
    text = f"{imports}\n@app.workflow\nasync def fulfil():\n    {code}\n"
    assert len(check(text).findings) == 1


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ("random", "random.random()"),
        ("*random", "random.random()"),
        ("*, open", "open('x')"),
        ("id, hash, input", "id(1), hash(1), input()"),
        ("", "random = make(); random.random()"),
        ("", "(lambda random: random.random())(1)"),
        ("", "[random.random() for random in make()]"),
        ("", "async def inner(random): return random.random()"),
        ("", "for random in make(): random.random()"),
        ("", "with make() as random: random.random()"),
        ("", "from rota import random; random()"),
        ("", "def random(): return 4\n    random()"),
        ("", "match make():\n        case [*random]: random.random()"),
        ("", "try: pass\n    except ValueError as random: random.random()"),
        ("", "if (random := make()): random.random()"),
        ("", "class random:\n        random = 4\n    random.random()"),
    ],
)
def test_a_shadowed_name_is_left_alone(parameters: str, code: str) -> None:
    text = f"import random\n@app.workflow\nasync def fulfil({parameters}):\n    {code}\n"
    assert check(text).findings == ()


def test_a_name_of_a_class_body_is_not_seen_in_its_methods() -> None:
    text = """
    import random
    @app.workflow
    async def fulfil():
        class Dice:
            random = 4
            def roll(self): return random.random()
    """
    assert [finding.line for finding in check(text).findings] == [7]


def test_global_and_nonlocal_names_are_resolved() -> None:
    text = """
    from time import time
    @app.workflow
    async def fulfil():
        global clock
        clock = time
        start = time
        def inner():
            nonlocal start
            start()
        clock()
        inner()
    """
    lines = [finding.line for finding in check(text).findings]
    assert lines == [6, 7, 10, 11]


# -- workflows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("@app.workflow\nasync def f(): time.time()", "f"),
        ("@app.workflow\ndef f(): time.time()", "f"),
        ("@app.workflow()\nasync def f(): time.time()", "f"),
        ("@app.workflow(retries=2, name='g')\nasync def f(): time.time()", "g"),
        ("@shop.main.app.workflow\nasync def f(): time.time()", "f"),
        ("@make().workflow(name='g')\nasync def f(): time.time()", "g"),
        ("workflow = app.workflow\n@workflow\nasync def f(): time.time()", "f"),
        ("@traced\n@app.workflow\n@cached(1)\nasync def f(): time.time()", "f"),
        ("async def f(): time.time()\napp.workflow(f)", "f"),
        ("async def f(): time.time()\ng = app.workflow(name='g')(f)", "g"),
        ("def make(app):\n    @app.workflow\n    async def f(): time.time()", "f"),
        ("class A:\n    @staticmethod\n    @app.workflow\n    async def f(): time.time()", "f"),
        ("if True:\n    @app.workflow\n    async def f(): time.time()", "f"),
        ("@app.workflow\nasync def f(at=time.time()): pass", "f"),
        ("@app.workflow\nasync def f(*, at=time.time()): pass", "f"),
    ],
)
def test_every_form_of_a_workflow_is_read(text: str, name: str) -> None:
    report = check(f"import time\n{text}\n")
    assert report.workflows == (name,)
    assert [finding.workflows for finding in report.findings] == [(name,)]


@pytest.mark.parametrize(
    "text",
    [
        "@app.step\nasync def f(): time.time()",
        "@app.step(retries=2)\ndef f(): time.time()",
        "def f(): time.time()",
        "class A:\n    def f(self): time.time()",
        "@other.workflows\ndef f(): time.time()",
        "@workflow\ndef f(): time.time()",
        "time.time()",
        "client.workflow('name')",
    ],
)
def test_code_outside_of_workflows_is_left_alone(text: str) -> None:
    assert check(f"import time\n{text}\n") == SourceReport()


def test_a_workflow_of_another_file_is_named_as_not_read() -> None:
    report = check("from shop import fulfil\napp.workflow(fulfil)\n")
    assert [(unread.line, unread.name) for unread in report.unread] == [(2, "fulfil")]


def test_code_inside_a_workflow_is_read_wherever_it_is() -> None:
    body = """
    async def inner(at: datetime.datetime = time.time()):
        return [time.time() for _ in names]
    class Local:
        at = time.time()
    if not rota.is_replay():
        time.time()
    f"{time.time()}"
    lambda: time.time()
    await send(time.time())
    at: time.time() = 1
    """
    assert len(found(body)) == 7


def test_helpers_are_followed_through_the_module() -> None:
    text = """
    import time
    def stamp(): return later()
    def later(): return stamp() or time.time()
    make = lambda: time.time()
    def unused(): time.time()
    @app.workflow
    async def one(): stamp()
    @app.workflow
    async def two(): list(map(stamp, [1])); make()
    """
    findings = check(text).findings
    assert [(finding.line, finding.workflows) for finding in findings] == [
        (4, ("one", "two")),
        (5, ("two",)),
    ]
    assert findings[0].function == "later"
    assert findings[0].text == (
        "shop.py:4  one, two  time.time() differs at a replay: write await rota.now()"
    )


def test_steps_and_child_workflows_are_not_followed() -> None:
    text = """
    import time
    @app.step
    async def charge(): time.time()
    @app.workflow
    async def child(): time.time()  # rota: ok its own finding
    @app.workflow
    async def parent():
        @app.step
        async def inner(): time.time()
        await charge()
        await charge.keyed("a")()
        await child()
        await inner()
    """
    assert check(text).findings == ()


def test_a_sync_workflow_gets_the_blocking_verbs() -> None:
    body = "time.time(); time.sleep(1); datetime.date.today()"
    assert [advice for _, advice in found(body, kind="def")] == [
        "write rota.blocking.now()",
        "write rota.blocking.sleep(…)",
        "write (rota.blocking.now()).date()",
    ]


def test_the_place_counts_columns_from_one() -> None:
    [finding] = check(in_workflow("x = time.time()")).findings
    line = in_workflow("x = time.time()").splitlines()[finding.line - 1]
    assert line[finding.column - 1 :] == "time.time()"


# -- silence -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "comment",
    ["# rota: ok for a log line", "#rota:ok because", "# rota: ok - logged", "# noqa # x"],
)
def test_a_reason_silences_a_line(comment: str) -> None:
    report = check(in_workflow(f"time.time()  {comment}\ntime.time()"))
    silenced = "rota" in comment
    assert report.silenced_count == int(silenced)
    assert len(report.findings) == 2 - silenced


@pytest.mark.parametrize("comment", ["# rota: ok", "# rota: ok   ", "# rota: ok:"])
def test_without_a_reason_nothing_is_silenced(comment: str) -> None:
    [finding] = check(in_workflow(f"time.time()  {comment}")).findings
    assert finding.advice == "write await rota.now() (a # rota: ok needs a reason behind it)"


def test_a_comment_is_not_searched_in_strings_or_on_other_lines() -> None:
    report = check(in_workflow('"# rota: ok x"; time.time()\n# rota: ok above\ntime.time()'))
    assert len(report.findings) == 2


def test_a_comment_within_a_call_of_several_lines_silences_it() -> None:
    assert found("requests.get(\n    'u',  # rota: ok a test double\n)") == []


@pytest.mark.parametrize("odd", ["\x0c", "\u2028", "\x1c"])
def test_odd_line_ends_do_not_move_a_comment(odd: str) -> None:
    text = (
        f"import time\nx = '{odd}'\n@app.workflow\ndef f():\n    time.time()  # rota: ok a reason\n"
    )
    report = check_source(f"{text}    time.time()\n", "shop.py")
    assert [finding.line for finding in report.findings] == [6]


# -- hostile sources ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n", "# nothing", "'''only a docstring'''", "x = 1\n"])
def test_a_file_without_workflows_has_no_findings(text: str) -> None:
    assert check_source(text, "shop.py") == SourceReport()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("x = 1\ndef f(:\n    pass\n", "shop.py:2 "),
        ("print 'x'\n", "shop.py:1 "),
        ("if x:\npass\n", "shop.py:2 "),
        ("x = 'a\n", "shop.py:1 "),
        ("\0", "shop.py"),
        ("x = " + "(" * 5000 + ")" * 5000, "shop.py"),
        ("x = " + "-" * 100_000 + "1", "shop.py"),
        ("x = " + "[" * 90 + "]" * 89, "shop.py:1 "),
    ],
)
def test_a_file_that_is_not_python_is_an_error_with_its_line(text: str, where: str) -> None:
    with pytest.raises(UsageError, match="cannot be read: ") as caught:
        check_source(text, "shop.py")
    assert caught.value.message.startswith(where)


def test_code_nested_too_deeply_is_an_error() -> None:
    chain = "x" + ".y()" * 3000
    with pytest.raises(UsageError, match="nested too deeply"):
        check_source(f"@app.workflow\ndef f():\n    {chain}\n", "shop.py")


def test_warnings_of_the_code_are_not_shown() -> None:
    assert check_source("@app.workflow\ndef f():\n    '\\d'; 1 is 1\n", "f").workflows == ("f",)


def test_names_that_are_made_of_each_other_end() -> None:
    body = "a = b\nb = a\nc = c | c\nfor x in a: pass\nfor x in c: pass\na()\n"
    assert found(body) == []
    doubled = "\n".join(f"x{n + 1} = x{n} | x{n}" for n in range(60))
    assert len(found(f"x0 = set(names)\n{doubled}\nlist(x60)")) == 1


def test_recursive_helpers_end() -> None:
    text = "def f(): return g()\ndef g(): return f()\n@app.workflow\ndef w(): f()\n"
    assert check_source(text, "f").findings == ()


def test_the_cost_of_a_huge_file_grows_with_its_length() -> None:
    def cost(count: int) -> float:
        helpers = [f"def h{n}():\n    return h{n + 1}() or random.random()" for n in range(count)]
        text = "import random\n" + "\n".join(helpers) + f"\ndef h{count}(): pass\n"
        text += "@app.workflow\nasync def w(): h0()\n"
        begin = time.process_time()
        assert len(check_source(text, "huge.py").findings) == count
        return time.process_time() - begin

    cost(100)
    assert cost(8000) < 40 * cost(1000)


# -- bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "# ä\r\nx = 1\r\n".encode(),
        b"\xef\xbb\xbf# a mark\nx = 1\n",
        b"# -*- coding: latin-1 -*-\nx = '\xe4'\n",
        b"x = 1\ry = 2\r",
        b"",
    ],
)
def test_the_encoding_is_that_of_python(source: bytes) -> None:
    text = source_text(source, "shop.py")
    assert "\r" not in text
    check_source(text, "shop.py")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (b"x = 1\n# ok\ny = 2\nz = '\xe4'\n", "shop.py:4 cannot be read: it is not utf-8"),
        (b"x = '\xff'\n", "shop.py cannot be read: invalid or missing encoding"),
        (b"# coding: klingon\n", "shop.py cannot be read: unknown encoding: klingon"),
        ("x = 1\n".encode("utf-16"), "shop.py cannot be read: "),
    ],
)
def test_bytes_in_another_encoding_are_an_error(source: bytes, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        source_text(source, "shop.py")
    assert caught.value.message.startswith(says)
