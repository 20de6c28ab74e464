"""Each kind of finding in workflow code, and its near misses."""

from __future__ import annotations

import pytest

from tests.core.workflows.kit import found

IN_A_STEP = "call it in a step"


@pytest.mark.parametrize(
    ("code", "name", "advice"),
    [
        ("random.random()", "random.random()", "write rota.random()"),
        ("random.choice(names)", "random.choice(…)",
            "write random.Random(rota.uuid().int).choice(…)"),
        ("random.Random()", "random.Random()", "write random.Random(rota.uuid().int)"),
        ("random.SystemRandom(7)", "random.SystemRandom(…)", "draw from rota.random()"),
        ("np.random.rand()", "np.random.rand()", "write random.Random(rota.uuid().int).rand(…)"),
        ("time.time()", "time.time()", "write await rota.now()"),
        ("time.monotonic()", "time.monotonic()", "write await rota.now()"),
        ("time.perf_counter()", "time.perf_counter()", "write await rota.now()"),
        ("time.gmtime()", "time.gmtime()", "write await rota.now()"),
        ("time.strftime('%Y')", "time.strftime(…)", "write await rota.now()"),
        ("time.sleep(1)", "time.sleep(…)", "write await rota.sleep(…)"),
        ("datetime.datetime.now()", "datetime.datetime.now()", "write await rota.now()"),
        ("datetime.datetime.utcnow()", "datetime.datetime.utcnow()", "write await rota.now()"),
        ("datetime.datetime.today()", "datetime.datetime.today()", "write await rota.now()"),
        ("datetime.date.today()", "datetime.date.today()", "write (await rota.now()).date()"),
        ("uuid.uuid1()", "uuid.uuid1()", "write rota.uuid()"),
        ("str(uuid.uuid4())", "uuid.uuid4()", "write rota.uuid()"),
        ("secrets.token_hex(8)", "secrets.token_hex(…)", IN_A_STEP),
        ("os.urandom(8)", "os.urandom(…)", IN_A_STEP),
        ("os.environ['A']", "os.environ", IN_A_STEP),
        ("os.environ.get('A')", "os.environ", IN_A_STEP),
        ("sorted(os.environ)", "os.environ", IN_A_STEP),
        ("os.getenv('A')", "os.getenv(…)", IN_A_STEP),
        ("hash(names)", "hash(…)", "write a digest of hashlib"),
        ("id(names)", "id(…)", "use a key of your own"),
        ("sorted(names, key=id)", "id", "use a key of your own"),
        ("list(map(uuid.uuid5, names)), map(uuid.uuid4, names)", "uuid.uuid4", "write rota.uuid()"),
        ("open('x')", "open(…)", IN_A_STEP),
        ("Path('x').read_text()", "Path('x').read_text()", IN_A_STEP),
        ("(Path('x') / 'y').parent.exists()", "(Path('x') / 'y').parent.exists()", IN_A_STEP),
        ("Path('x').write_text('')", "Path('x').write_text(…)", IN_A_STEP),
        ("Path.cwd()", "Path.cwd()", IN_A_STEP),
        ("list(Path('x').iterdir())", "Path('x').iterdir()", IN_A_STEP),
        ("sorted(os.listdir())", "os.listdir()", IN_A_STEP),
        ("glob.glob('*')", "glob.glob(…)", IN_A_STEP),
        ("os.path.exists('x')", "os.path.exists(…)", IN_A_STEP),
        ("requests.get('u')", "requests.get(…)", IN_A_STEP),
        ("requests.Session()", "requests.Session()", IN_A_STEP),
        ("httpx.post('u')", "httpx.post(…)", IN_A_STEP),
        ("await client.get('u')", "client.get(…)", IN_A_STEP),
        ("await gather(*map(client.get, names))", "client.get", IN_A_STEP),
        ("await httpx.AsyncClient().get('u')", "httpx.AsyncClient().get(…)", IN_A_STEP),
        ("urllib.request.urlopen('u')", "urllib.request.urlopen(…)", IN_A_STEP),
        ("socket.create_connection(('h', 1))", "socket.create_connection(…)", IN_A_STEP),
        ("aiohttp.ClientSession()", "aiohttp.ClientSession()", IN_A_STEP),
        ("subprocess.run(['ls'])", "subprocess.run(…)", IN_A_STEP),
        ("subprocess.Popen(['ls'])", "subprocess.Popen(…)", IN_A_STEP),
        ("shutil.rmtree('x')", "shutil.rmtree(…)", IN_A_STEP),
        ("tempfile.mkdtemp()", "tempfile.mkdtemp()", IN_A_STEP),
        ("await asyncio.to_thread(send)", "asyncio.to_thread(…)", IN_A_STEP),
        ("await asyncio.open_connection('h', 1)", "asyncio.open_connection(…)", IN_A_STEP),
        ("await asyncio.create_subprocess_exec('x')", "asyncio.create_subprocess_exec(…)",
            IN_A_STEP),
        ("asyncio.get_running_loop().run_in_executor(None, send)", "….run_in_executor(…)",
            IN_A_STEP),
        ("for each in asyncio.as_completed([send()]): await each", "asyncio.as_completed(…)",
            "write rota.as_completed(…)"),
        ("threading.Lock()", "threading.Lock()", "write asyncio.Lock()"),
        ("threading.Thread(target=send)", "threading.Thread(…)", IN_A_STEP),
        ("ThreadPoolExecutor()", "ThreadPoolExecutor()", IN_A_STEP),
    ],
)  # fmt: skip
def test_a_read_of_the_world_is_found(code: str, name: str, advice: str) -> None:
    assert found(code) == [(name, advice)]


@pytest.mark.parametrize(
    "code",
    [
        "rota.random(), rota.uuid(), await rota.now(), await now(), await sleep(1)",
        "random.Random(7).choice(names)",
        "random.Random(rota.uuid().int).shuffle(names)",
        "np.random.default_rng(7)",
        "time.gmtime(0), list(map(time.gmtime, names)), time.strftime('%Y', time.gmtime(0))",
        "datetime.datetime(2026, 1, 1), datetime.date(2026, 1, 1), datetime.timedelta(1)",
        "datetime.datetime.fromisoformat('2026-01-01')",
        "uuid.UUID(int=1), uuid.uuid5(uuid.NAMESPACE_DNS, 'x')",
        "secrets.compare_digest('a', 'b')",
        "os.path.join('a', 'b'), os.sep, os.fspath('a')",
        "Path('x') / 'y', Path('x').name, Path('x').with_suffix('.y').as_posix()",
        "urllib.parse.quote('a'), urllib.request.Request('u')",
        "subprocess.PIPE, subprocess.CalledProcessError(1, 'x')",
        "await asyncio.sleep(1); await asyncio.gather(send(1)); asyncio.Lock(); asyncio.Queue()",
        "async with asyncio.timeout(1): await asyncio.wait_for(send(1), 2)",
        "async with asyncio.TaskGroup() as group: group.create_task(send(1))",
        "await send(read), await read.aio('x')",
        "names.read_text(), names.open(), names.hash(), names.id",
        "print('x'), len(names), {'a': 1}['a']",
    ],
)
def test_a_near_miss_is_left_alone(code: str) -> None:
    assert found(code) == []


def test_an_error_of_a_library_may_be_caught() -> None:
    body = """
    try:
        await send(1)
    except (requests.HTTPError, subprocess.CalledProcessError, socket.timeout):
        raise requests.ConnectionError("x")
    """
    assert found(body) == []


@pytest.mark.parametrize(
    ("code", "items"),
    [
        ("for x in {'a', 'b'}: await send(x)", "{'a', 'b'}"),
        ("for x in set(names): await send(x)", "set(names)"),
        ("for x in frozenset(names): pass", "frozenset(names)"),
        ("for x in {y for y in names}: pass", "{y for y in names}"),
        ("unique = set(names)\nfor x in unique: pass", "unique"),
        ("unique: set[str] = send(1)\nfor x in unique: pass", "unique"),
        ("unique = set(names)\nunique |= {'x'}\nfor x in unique: pass", "unique"),
        ("unique = set()\nunique.add('x')\nfor x in unique: pass", "unique"),
        ("a = set(names)\nb = a | {'x'}\nfor x in b - {'y'}: pass", "b - {'y'}"),
        ("for x in set(names).union({'x'}): pass", "set(names).union({'x'})"),
        ("for x in COLOURS: pass", "COLOURS"),
        ("for x in {}.keys() & names: pass", "{}.keys() & names"),
        ("for x in set(names) if names else {'x'}: pass", "set(names) if names else {'x'}"),
        ("await gather(*[send(x) for x in COLOURS])", "COLOURS"),
        ("await gather(*(send(x) for x in COLOURS))", "COLOURS"),
        ("sorted([await send(x) for x in COLOURS])", "COLOURS"),
        ("{await send(x) for x in COLOURS}", "COLOURS"),
        ("sorted(read(x) for x in COLOURS)", "COLOURS"),
        ("{x: 1 for x in COLOURS}", "COLOURS"),
        ("list(COLOURS)", "COLOURS"),
        ("next(iter(COLOURS))", "COLOURS"),
        ("dict.fromkeys(COLOURS)", "COLOURS"),
        ("', '.join(COLOURS)", "COLOURS"),
        ("print(*COLOURS)", "COLOURS"),
        ("[*COLOURS]", "COLOURS"),
        ("names.extend(COLOURS)", "COLOURS"),
        ("a, b = COLOURS", "COLOURS"),
        ("(w := set(names)); list(w)", "w"),
        ("[y for x in names if (y := set(names))]; list(y)", "y"),
        ("{await other(x) for x in COLOURS}", "COLOURS"),
    ],
)
def test_the_order_of_a_set_is_found(code: str, items: str) -> None:
    assert found(code) == [(f"the order of {items}", f"write sorted({items})")]


@pytest.mark.parametrize("annotation", ["set[str]", "frozenset[str]", "set[str] | None", "set"])
def test_a_parameter_with_the_type_of_a_set_is_one(annotation: str) -> None:
    assert found("for x in names: pass", parameters=f"names: {annotation}")
    assert not found("for x in names: pass", parameters=f"names: list[{annotation}]")


def test_an_element_popped_from_a_set_is_found() -> None:
    unique = "unique = set(names)\n"
    assert found(unique + "unique.pop()") == [("unique.pop()", "take one of sorted(unique)")]
    assert found("names.pop(), {}.pop('x')") == []


@pytest.mark.parametrize(
    "code",
    [
        "for x in sorted(set(names)): await send(x)",
        "for x in sorted({y for y in names}): pass",
        "unique = set(names)\nunique = sorted(unique)\nfor x in unique: pass",
        "a = set(names) if names else names\nb = set(names) or names\nlist(a), list(b)",
        "max(*COLOURS), len({*COLOURS})",
        "sorted(x.lower() for x in COLOURS)",
        "sum(len(x) for x in COLOURS), max(COLOURS), len(COLOURS), any(x for x in COLOURS)",
        "{x.lower() for x in COLOURS}, set(x for x in COLOURS), {*COLOURS}",
        "'x' in COLOURS, COLOURS == {'a'}, COLOURS | {'a'}",
        "for x in {'a': 1}: pass",
        "for x in dict.fromkeys(names): pass",
        "for x in names: pass",
        "await send(COLOURS)",
        "tasks = {asyncio.create_task(send(x)) for x in names}\nfor x in tasks: x.cancel()",
        "tasks = set()\ntasks.add(asyncio.create_task(send(1)))\nawait asyncio.gather(*tasks)",
        "tasks = set()\nt = asyncio.create_task(send(1))\ntasks.add(t)\nfor x in tasks: pass",
        "done, rest = await asyncio.wait([asyncio.create_task(send(1))])\nfor x in done: pass",
        "a, b = names\nc = 1, 2",
    ],
)
def test_a_set_in_which_order_does_not_matter_is_left_alone(code: str) -> None:
    assert found(code) == []


def test_a_name_with_a_set_and_another_value_is_not_taken_for_a_set() -> None:
    body = "".join(f"a{n} = set(names)\na{n} = sorted(a{n})\nlist(a{n})\n" for n in range(20))
    assert found(body) == []
    assert len(found(body.replace("sorted", "frozenset"))) == 20
