"""The settings of a server: one group per concern, read from file, environment and flags."""

from homing.server.settings.groups import (
    ADMIN_KEY_FILE,
    DATABASE_FILE,
    ENCRYPTION_KEY_FILE,
    PROCESSES_MAX,
    DatabaseSettings,
    DeliverySettings,
    ListenSettings,
    ReachSettings,
    Settings,
)
from homing.server.settings.load import (
    ENV_CONFIG,
    ENV_SERVER,
    environ_of_children,
    ignored_variables,
    load_settings,
    settings_and_sources,
    settings_table,
)
from homing.server.settings.socket_activation import inherited_descriptor

__all__ = [
    "ADMIN_KEY_FILE",
    "DATABASE_FILE",
    "ENCRYPTION_KEY_FILE",
    "ENV_CONFIG",
    "ENV_SERVER",
    "PROCESSES_MAX",
    "DatabaseSettings",
    "DeliverySettings",
    "ListenSettings",
    "ReachSettings",
    "Settings",
    "environ_of_children",
    "ignored_variables",
    "inherited_descriptor",
    "load_settings",
    "settings_and_sources",
    "settings_table",
]
