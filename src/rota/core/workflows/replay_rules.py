"""The names that workflow code must not use, and what to write instead.

A name is the dotted path that it is imported by. An object that a call returns is that path with
`()`: `pathlib.Path().read_text` is a method of any path, written `Path(…)` or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DIFFERS = "differs at a replay"
REPEATS = "runs again at every replay"
REFUSED = "is refused in a workflow"
NOT_DURABLE = "is not durable"
IN_A_STEP = "call it in a step"
SET, FROZENSET, PATH = "builtins.set()", "builtins.frozenset()", "pathlib.Path()"


class ReplayRule(NamedTuple):
    """The problem of a name, and the advice. `{name}` in the advice is its last part."""

    problem: str
    advice: str
    # A call with so many arguments depends on nothing else: `random.Random(7)`.
    arguments_min: int | None = None


# Each line: a module or an object, and its names. A star means all of them.
_TABLE: tuple[tuple[str, str, str], ...] = (
    (DIFFERS, "write rota.random()", "random: random"),
    (
        DIFFERS,
        "write random.Random(rota.uuid().int).{name}(…)",
        """
        random: *
        numpy.random: *
        """,
    ),
    (DIFFERS, "draw from rota.random()", "random: SystemRandom"),
    (DIFFERS, "write rota.uuid()", "uuid: uuid1 uuid4 uuid6 uuid7 uuid8"),
    (
        DIFFERS,
        "write await rota.now()",
        """
        time: time time_ns monotonic monotonic_ns perf_counter perf_counter_ns clock_gettime
        time: process_time process_time_ns thread_time thread_time_ns clock_gettime_ns
        datetime.datetime: now utcnow today
        django.utils.timezone: now
        pendulum: now
        arrow: now utcnow
        """,
    ),
    (
        DIFFERS,
        "write (await rota.now()).date()",
        """
        datetime.date: today
        django.utils.timezone: localdate
        """,
    ),
    (NOT_DURABLE, "write await rota.sleep(…)", "time: sleep"),
    (DIFFERS, "write a digest of hashlib", "builtins: hash"),
    (DIFFERS, "use a key of your own", "builtins: id"),
    (
        DIFFERS,
        IN_A_STEP,
        """
        secrets: *
        os: urandom getrandom getpid getppid getcwd cpu_count getlogin uname getloadavg
        os: environ environb getenv getenvb
        uuid: getnode
        getpass: getuser
        platform: node
        builtins: input open
        io: open
        aiofiles: open
        anyio: open_file
        os: open read listdir scandir walk fwalk stat lstat access readlink
        os.path: exists lexists isfile isdir islink getsize getmtime getctime getatime
        os.path: realpath abspath expanduser
        glob: glob iglob
        pathlib.Path: cwd home
        pathlib.Path(): open read_text read_bytes iterdir glob rglob walk exists is_file is_dir
        pathlib.Path(): is_symlink is_mount stat lstat owner group samefile readlink
        pathlib.Path(): resolve absolute expanduser
        """,
    ),
    (
        REPEATS,
        IN_A_STEP,
        """
        subprocess: *
        shutil: *
        tempfile: *
        os: system popen kill fork write remove unlink rename replace mkdir makedirs rmdir
        os: removedirs link symlink chmod chown putenv chdir startfile utime truncate
        pathlib.Path(): write_text write_bytes touch mkdir rmdir unlink rename replace chmod
        pathlib.Path(): symlink_to hardlink_to copy copy_into move move_into
        """,
    ),
    (
        REPEATS,
        IN_A_STEP,
        """
        requests: get post put patch delete head options request Session session
        requests.Session(): get post put patch delete head options request send
        requests.session(): get post put patch delete head options request send
        httpx: get post put patch delete head options request stream Client AsyncClient
        httpx.Client(): get post put patch delete head options request send stream
        httpx.AsyncClient(): get post put patch delete head options request send stream
        aiohttp: ClientSession request
        aiohttp.ClientSession(): get post put patch delete head options request ws_connect
        urllib.request: *
        urllib3: request PoolManager
        urllib3.PoolManager(): request urlopen
        http.client: HTTPConnection HTTPSConnection
        socket: socket create_connection create_server socketpair getaddrinfo gethostbyname
        socket: gethostbyaddr gethostname getfqdn
        smtplib: SMTP SMTP_SSL
        imaplib: IMAP4 IMAP4_SSL
        ftplib: FTP FTP_TLS
        sqlite3: connect
        psycopg: connect
        psycopg2: connect
        asyncpg: connect create_pool
        boto3: client resource
        websockets: connect
        """,
    ),
    (DIFFERS, "write rota.as_completed(…)", "asyncio: as_completed"),
    (
        DIFFERS,
        "write asyncio.{name}()",
        "threading: Lock Event Condition Semaphore BoundedSemaphore",
    ),
    (
        DIFFERS,
        IN_A_STEP,
        """
        threading: *
        multiprocessing: Process Pool Queue Manager cpu_count current_process
        concurrent.futures: ThreadPoolExecutor ProcessPoolExecutor
        """,
    ),
    (
        REFUSED,
        IN_A_STEP,
        """
        asyncio: to_thread open_connection open_unix_connection start_server start_unix_server
        asyncio: create_subprocess_exec create_subprocess_shell
        anyio: connect_tcp run_process open_process
        anyio.to_thread: run_sync
        """,
    ),
)
_SEEDED = "write random.Random(rota.uuid().int)"
# Calls that depend on nothing else once they have so many arguments.
_FIXED_BY = {
    "random.Random": 1, "numpy.random.default_rng": 1, "numpy.random.RandomState": 1,
    "time.localtime": 1, "time.gmtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2,
}  # fmt: skip
# Names without an effect, in modules that are listed with a star.
_PURE = {
    "secrets.compare_digest", "urllib.request.Request", "urllib.request.pathname2url",
    "urllib.request.url2pathname", "shutil.get_terminal_size", "subprocess.list2cmdline",
    "subprocess.CompletedProcess", "numpy.random.Generator", "numpy.random.SeedSequence",
}  # fmt: skip
_ERRORS = ("Error", "Exception", "Expired", "Warning")


def _rules() -> Iterator[tuple[str, ReplayRule]]:
    for problem, advice, lines in _TABLE:
        for line in filter(None, map(str.strip, lines.splitlines())):
            owner, _, names = line.partition(": ")
            yield from ((f"{owner}.{name}", ReplayRule(problem, advice)) for name in names.split())
    for name, count in _FIXED_BY.items():
        advice = "write await rota.now()" if name.startswith("time.") else _SEEDED
        yield name, ReplayRule(DIFFERS, advice, count)


RULES = dict(_rules())


def called(path: str, arguments: int) -> ReplayRule | None:
    """The rule that a call of this name breaks, given its number of arguments."""
    rule = _rule(path)
    if rule is None or (rule.arguments_min is not None and arguments >= rule.arguments_min):
        return None
    return rule


def named(path: str) -> ReplayRule | None:
    """The rule that a use of this name breaks, without a call: `key=id`, `os.environ`.

    Constants and classes (`subprocess.PIPE`, `except requests.HTTPError`) break none."""
    rule = _rule(path)
    is_function = path.rpartition(".")[2][:1].islower()
    return rule if rule is not None and is_function and rule.arguments_min is None else None


def _rule(path: str) -> ReplayRule | None:
    owner, _, name = path.rpartition(".")
    rule = RULES.get(path)
    if rule is None and path not in _PURE and not name.endswith(("()", *_ERRORS)):
        rule = RULES.get(f"{owner}.*")
    return rule and rule._replace(advice=rule.advice.replace("{name}", name))


def same_kind(path: str) -> str:
    """One name for all objects of a kind: a set, however it was made, is `builtins.set()`."""
    owner, _, name = path.rpartition(".")
    if path in _SETS or (owner == SET and name in _SET_METHODS):
        return SET
    if path in _PATHS or (owner == PATH and name in _PATH_METHODS):
        return PATH
    return path


_SETS = {
    FROZENSET, "typing.Set()", "typing.FrozenSet()", "typing.AbstractSet()",
    "typing.MutableSet()", "collections.abc.Set()", "collections.abc.MutableSet()",
}  # fmt: skip
_SET_METHODS = {
    "union()", "intersection()", "difference()", "symmetric_difference()", "copy()",
}  # fmt: skip
_PATHS = {"pathlib.Path.cwd()", "pathlib.Path.home()", "pathlib.PosixPath()"}
_PATH_METHODS = {
    "parent", "joinpath()", "with_suffix()", "with_name()", "with_stem()", "resolve()",
    "absolute()", "expanduser()", "rename()", "replace()",
}  # fmt: skip
