"""Notifications about work of every kind: rules, receivers, and the channels that send them."""

from rota.core.notifications.model import Notification
from rota.notifications.definition import Mail

__all__ = ["Mail", "Notification"]
