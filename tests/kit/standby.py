"""A standby of a throw-away PostgreSQL server, fed by streaming replication."""

from __future__ import annotations

from pathlib import Path

from tests.kit import postgres
from tests.kit.postgres import USER, PostgresServer


class StandbyServer(PostgresServer):
    """Follows `primary` from the moment it starts; `promote` makes it a primary of its own."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(durable=primary.durable, binaries=primary.binaries)
        self._primary = primary

    def _fill(self, home: Path) -> None:
        primary = self._primary
        command = [
            str(self.binaries / "pg_basebackup"), "-D", str(home / "data"), "-X", "stream",
            "-c", "fast", "--no-sync", "-h", str(primary.home), "-p", str(primary.port), "-U", USER,
        ]  # fmt: skip
        postgres.run(command, drop=True, cwd=home)
        # Not by its option -R: that names settings which an older libpq of the system refuses.
        source = f"host={primary.home} port={primary.port} user={USER}"
        with (home / "data" / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{source}'\n")
        (home / "data" / "standby.signal").touch()

    def promote(self) -> None:
        """Return when it accepts writes."""
        command = [str(self.binaries / "pg_ctl"), "promote", "-w", "-D", str(self.home / "data")]
        postgres.run(command, drop=True, cwd=self.home)
