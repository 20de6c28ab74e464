"""The part of an app that declares automations and consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from rota.automations.definition import Automation, AutomationOptions, EventFunction
from rota.automations.deploy import AppAutomations
from rota.core.runs.model import Queue
from rota.core.runs.names import checked_name
from rota.core.suggest import check_options
from rota.errors import UsageError
from rota.settings import Settings


class DeclaresAutomations:
    """Declares automations, each with a queue."""

    automations: AppAutomations
    workflows: Mapping[str, Any]
    settings: Settings
    _queues: dict[str, tuple[int, Queue]]

    def automation(self, name: str, **options: Unpack[AutomationOptions]) -> Automation:
        """Declare an automation. It is deployed when a worker starts.

        Args:
            name: Its name, unique in the namespace.
            options: `approval`, `timezone`, `queue`, `fix`, `retries`, `failed_reads`,
                `skip_after`, `dead_letter`.

        Returns:
            The automation; its topics and handlers are declared on it.

        Raises:
            UsageError: The name is taken, or an option is wrong.

        Example:
            inbox = app.automation("inbox", approval=True)
        """
        check_options(options, AutomationOptions, self.automation)
        if name in self.automations.declared or name in self.workflows:
            raise UsageError(f"{name} is declared twice", hint="Give one of them another name.")
        declared = self.automations.declared[name] = Automation(name, **options)
        queue = Queue(self.settings.namespace, checked_name(declared.queue, "queue"))
        self._queues.setdefault(declared.queue, (self.settings.slots, queue))
        return declared

    def consumer(
        self, name: str, **options: Unpack[AutomationOptions]
    ) -> Callable[[EventFunction], EventFunction]:
        """Make a function the consumer of a stream of events: for each event it returns the change
        that Rota makes, or None.

        It is an automation of one topic, both with this name. The type of the payloads is that of
        the parameter: `Event[Order]`.

        Args:
            name: Its name, unique in the namespace.
            options: As of `automation`. A `dead_letter` topic is declared too.

        Returns:
            A decorator that returns the function as it is.

        Raises:
            UsageError: The name is taken, or an option is wrong.

        Example:
            @app.consumer("orders", approval=True)
            async def ship(event: Event[Order]) -> Change | None:
                return send.change(to=event.payload.customer)
        """
        declared = self.automation(name, **options)

        def decorate(function: EventFunction) -> EventFunction:
            return declared.consume(name, function)

        return decorate
