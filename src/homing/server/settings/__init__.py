"""Every setting of a server, and how the settings are read at the start."""

from homing.server.settings.guard import SEAL_FILE
from homing.server.settings.load import (
    DATABASE_FILE,
    ENV_CONFIG,
    ENV_SERVER,
    Settings,
    environ_of_children,
    load_settings,
    settings_and_sources,
    settings_table,
    shown_value,
)

__all__ = [
    "DATABASE_FILE",
    "ENV_CONFIG",
    "ENV_SERVER",
    "SEAL_FILE",
    "Settings",
    "environ_of_children",
    "load_settings",
    "settings_and_sources",
    "settings_table",
    "shown_value",
]
