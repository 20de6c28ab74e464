"""The notification rules of an app: declared in code and `rota.toml`, deployed by workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rota.client.notifications import Notifications
from rota.core.notifications.model import Notification, NotificationKind
from rota.core.notifications.rules import alone
from rota.core.suggest import did_you_mean
from rota.core.time.instants import SECOND
from rota.errors import Transient, UsageError
from rota.notifications import delivery
from rota.notifications.definition import DeclaredRule, NotificationTable, declared
from rota.store.notifications import rules as store

if TYPE_CHECKING:
    from rota.client.client import Client


class DeclaredRules(dict[str, DeclaredRule]):
    """The rules that one program declares, in code and in its project file, by name."""

    _file: str | None = None
    page_url = ""  # where people open the dashboard: url under [http] in rota.toml

    def add(self, rule: DeclaredRule) -> None:
        """Add a rule."""
        if rule.name in self:
            raise UsageError(
                f"notification rule {rule.name} is declared twice",
                hint="Give one of them another name.",
            )
        self[rule.name] = rule

    def add_file(self, origin: str, tables: Mapping[str, NotificationTable]) -> None:
        """Replace the rules of a project's file."""
        self._file = origin
        for name in [name for name, rule in self.items() if rule.origin == origin]:
            del self[name]
        for name, table in tables.items():
            self.add(declared(name, origin, table))

    async def deploy(self, client: Client, origins: set[str]) -> None:
        """Bring the rules into the database; rules that these origins no longer declare go."""
        own = origins | {rule.origin for rule in self.values()}
        if self._file is not None:
            own.add(self._file)
        await client.connection.database.write(
            store.put, {name: (each.origin, each.rule) for name, each in self.items()},
            namespace=client.settings.namespace, origins=sorted(own),
        )  # fmt: skip


class AppNotifications(Notifications):
    """The rules that an app declares, and the notifications that were recorded."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.declared = DeclaredRules()

    async def test(self, name: str) -> str:
        """Send a test message by one rule, from this process.

        Args:
            name: The rule.

        Returns:
            The id of the message.
        """
        if name not in self.declared:
            known = ", ".join(sorted(self.declared))
            declare = f"Declare it in rota.toml as [notifications.{name}], or with app.notify()."
            raise UsageError(
                f"there is no notification rule {name!r}{did_you_mean(name, self.declared)}",
                hint=f"Declared rules: {known}." if known else declare,
            )
        now = self._client.clock.now()
        message_id = self._client.ids.make(now)
        filters = self.declared[name].rule.filters
        kind = filters.kinds[0] if filters.kinds else NotificationKind.FAILED
        test = Notification(
            id=message_id, kind=kind, source="workflow", name="rota notification test",
            run_id=message_id, at=now,
        )  # fmt: skip
        try:
            await delivery.deliver(self.declared, name, alone(test), now_s=now // SECOND)
        except Transient as error:
            if error.advice == Transient.hint:  # a test is not retried
                error.advice = "Check the address and the network, then test again."
            raise
        return message_id
