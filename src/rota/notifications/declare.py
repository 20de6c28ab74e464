"""How an app declares notification rules: by a channel, or by a function that is called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar, Unpack

from rota.core.notifications.model import KindName
from rota.core.suggest import check_options
from rota.notifications.definition import (
    Hook,
    Mail,
    NotificationFilterOptions,
    NotificationOptions,
    declared,
    hooked,
    table_of,
)
from rota.notifications.registry import AppNotifications
from rota.schedules.apply import origin_of_module

H = TypeVar("H", bound=Hook)


class DeclaresNotifications:
    """The part of an app that declares notification rules."""

    notifications: AppNotifications

    def notify(
        self,
        name: str,
        *,
        webhook: str | None = None,
        secret_env: str | None = None,
        command: str | None = None,
        pass_env: Sequence[str] = (),
        mail: Mail | None = None,
        ping: str | None = None,
        limit: str | None = None,
        **filters: Unpack[NotificationOptions],
    ) -> None:
        """Declare a notification rule with one channel.

        Args:
            name: Its name.
            webhook: The channel is this URL.
            secret_env: The variable with the key that signs webhooks.
            command: The channel is this command.
            pass_env: Variables that the command gets.
            mail: The channel is mail.
            ping: The channel is this URL, called without a body.
            limit: At most so many messages, such as `20/10m`; the others become a digest.
            filters: See `NotificationOptions`.

        Raises:
            UsageError: There is not exactly one channel, or a value is wrong.

        Example:
            app.notify("ops", webhook="https://example.com/hook", limit="20/10m")
        """
        check_options(filters, NotificationOptions, self.notify)
        table = table_of(
            filters, webhook=webhook, secret_env=secret_env, command=command,
            pass_env=list(pass_env), mail=mail, ping=ping, limit=limit,
        )  # fmt: skip
        origin = origin_of_module(sys._getframe(1).f_globals.get("__name__", "__main__"))
        self.notifications.declared.add(declared(name, origin, table))

    def on_notification(
        self,
        *kinds: KindName,
        name: str | None = None,
        **filters: Unpack[NotificationFilterOptions],
    ) -> Callable[[H], H]:
        """Call a function, sync or async, with each notification.

        Rota calls it again when it raises, so it may see a notification twice.

        Args:
            name: The name of the rule; without one, that of the function.
            kinds: Only these kinds; without any, all.
            filters: See `NotificationFilterOptions`.

        Returns:
            A decorator.

        Example:
            @app.on_notification("failed")
            def alert(notification: Notification) -> None: ...
        """
        check_options(filters, NotificationFilterOptions, self.on_notification)

        def register(hook: H) -> H:
            origin = origin_of_module(hook.__module__)
            table = table_of({**filters, "kinds": kinds})
            own: str = getattr(hook, "__name__", "hook")
            self.notifications.declared.add(hooked(name or own, origin, table, hook))
            return hook

        return register
