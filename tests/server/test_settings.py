"""Settings: where they come from, and what stops the start."""

from __future__ import annotations

import json
import sys
from operator import attrgetter
from pathlib import Path

import pytest
from msgspec.structs import replace

from homing.errors import BadSetting
from homing.policy.egress import IdentityPaths
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS
from homing.policy.retry import Anchor, OnGone, OnRetryAfter
from homing.server.settings import (
    Settings,
    ignored_variables,
    load_settings,
    settings_table,
)
from homing.server.wiring import engine_options


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def wrong(text: str = "", **environ: str) -> str:
    """What the start says about it."""
    if text:
        Path("homing.toml").write_text(text)
    with pytest.raises(BadSetting) as caught:
        load_settings(environ=environ)
    return caught.value.detail


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings(environ={"PATH": "/bin", "OTHER": "x"})
    assert settings == Settings()
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.1", 8700)
    assert settings.database.retention_ms == 30 * 86_400_000


def test_the_defaults_are_within_their_own_ranges() -> None:
    for setting in settings_table():
        assert setting.sentence, setting.name
        assert setting.allowed, setting.name
        shown = str(setting.default).lower() if isinstance(setting.default, bool) else None
        listed = ",".join(setting.default) if isinstance(setting.default, tuple) else None
        text = shown or (str(setting.default) if listed is None else listed)
        load_settings(environ={setting.env: text})


def test_the_file_then_the_environment_then_flags() -> None:
    Path("homing.toml").write_text("fresh_slots = 100\nretry_slots = 100\nendpoint_slots = 10\n")
    environ = {"HOMING_RETRY_SLOTS": "200", "HOMING_ENDPOINT_SLOTS": "20"}
    settings = load_settings({"endpoint_slots": "30", "node": None}, environ=environ)
    slots = (
        settings.delivery.fresh_slots,
        settings.delivery.retry_slots,
        settings.delivery.endpoint_slots,
    )
    assert slots == (100, 200, 30)


def test_a_file_that_is_named_must_be_there() -> None:
    with pytest.raises(BadSetting, match=r"other\.toml is not there"):
        load_settings(config="other.toml", environ={})
    assert "gone.toml is not there" in wrong(HOMING_CONFIG="gone.toml")


def test_an_ipv6_address_is_listened_on() -> None:
    settings = load_settings(environ={"HOMING_LISTEN": "[::1]:80"})
    assert (settings.listen.host, settings.listen.port) == ("::1", 80)


@pytest.mark.parametrize("listen", ["8700", "a:b", "a:70000", "::1:80", ":80", ""])
def test_another_address_stops_the_start(listen: str) -> None:
    assert "HOMING_LISTEN" in wrong(HOMING_LISTEN=listen)


GIVEN = {  # Every key that there is, with a value that is not its default. No key may go away.
    "allow_networks": ("10.0.0.0/8", ("10.0.0.0/8",), "reach.allow_networks"),
    "metrics_networks": ("10.0.0.0/8", ("10.0.0.0/8",), "telemetry.metrics_networks"),
    "allow_hosts": ("hooks.internal", ("hooks.internal",), "reach.allow_hosts"),
    "allow_loopback": ("true", True, "reach.allow_loopback"),
    "allow_metadata": ("true", True, "reach.allow_metadata"),
    "allow_ports": ("443", ("443",), "reach.allow_ports"),
    "deny_ports": ("22", ("22",), "reach.deny_ports"),
    "on_lost_commits": ("hold", "hold", "fleet.on_lost_commits"),
    "writer": ("thread", "thread", "database.writer"),
    "role": ("api", "api", "fleet.role"),
    "processes": ("4", 4, "fleet.processes"),
    "lease_ms": ("2000", 2000, "fleet.lease_ms"),
    "node_numbers": ("32-63", "32-63", "fleet.node_numbers"),
    "listen_url": ("postgresql://h/db", "postgresql://h/db", "database.listen_url"),
    "pooled": ("true", True, "database.pooled"),
    "secret_key": ("k" * 43, "k" * 43, "security.secret_key"),
    "fair_by": ("data.userId", "data.userId", "delivery.fair_by"),
    "publish_per_second": ("7", 7, "tenants.publish_per_second"),
    "pending_max": ("7", 7, "tenants.pending_max"),
    "subscriptions_max": ("7", 7, "tenants.subscriptions_max"),
    "event_check": ("refuse", "refuse", "tenants.event_check"),
    "unknown_event_types": ("refuse", "refuse", "tenants.unknown_event_types"),
    "changes_per_minute": ("7", 7, "tenants.changes_per_minute"),
    "drain_ms": ("7", 7, "listen.drain_ms"),
    "connections_max": ("7", 7, "listen.connections_max"),
    "connections_per_address_max": ("7", 7, "listen.connections_per_address_max"),
    "listen": ("0.0.0.0:80", "0.0.0.0:80", "listen.address"),
    "data": ("elsewhere", "elsewhere", "database.data"),
    "database_url": ("postgresql://h/db", "postgresql://h/db", "database.url"),
    "outbox_url": ("sqlite:shop.db", "sqlite:shop.db", "outbox.url"),
    "search_fields": ("data.a, data.b.c", ("data.a", "data.b.c"), "search.fields"),
    "outbox_poll_ms": ("70", 70, "outbox.poll_ms"),
    "admin_key": ("a-key-of-some-length", "a-key-of-some-length", "security.admin_key"),
    "audit_retention_days": ("30", 30, "database.audit_retention_days"),
    "proxy_user_header": ("Remote-User", "Remote-User", "people.user_header"),
    "proxy_groups_header": ("Remote-Groups", "Remote-Groups", "people.groups_header"),
    "proxy_networks": ("10.0.0.7/32", ("10.0.0.7/32",), "people.networks"),
    "people": ("ada=admin, b=viewer:x", ("ada=admin", "b=viewer:x"), "people.rules"),
    "hosts": ("hooks.example", ("hooks.example",), "listen.hosts"),
    "policy": ("standard-webhooks", "standard-webhooks", "delivery.policy"),
    "ca_file": (__file__, __file__, "reach.ca_file"),
    "client_certificate_file": (__file__, __file__, "egress.certificate_file"),
    "client_key_file": (__file__, __file__, "egress.key_file"),
    "egress_proxy": ("http://p:1", "http://p:1", "egress.proxy_url"),
    "egress_direct_hosts": ("a.example", ("a.example",), "egress.direct_hosts"),
    "egress_proxy_resolves": ("true", True, "egress.proxy_resolves"),
    "egress_source_addresses": ("10.0.0.1", ("10.0.0.1",), "egress.source_addresses"),
    "egress_addresses": ("203.0.113.0/24", ("203.0.113.0/24",), "egress.addresses"),
    "fresh_slots": ("70", 70, "delivery.fresh_slots"),
    "retry_slots": ("70", 70, "delivery.retry_slots"),
    "endpoint_slots": ("7", 7, "delivery.endpoint_slots"),
    "memory_bytes_max": ("2000000", 2_000_000, "delivery.memory_bytes_max"),
    "grace_ms": ("7", 7, "delivery.grace_ms"),
    "outage_detection": ("false", False, "delivery.outage_detection"),
    "verification": ("challenge", "challenge", "delivery.verification"),
    "host_rate_per_second": ("0.5", 0.5, "delivery.host_rate_per_second"),
    "retention_days": ("7", 7, "database.retention_days"),
    "public_url": ("https://h.example", "https://h.example", "notices.public_url"),
    "smtp_host": ("mail.example", "mail.example", "notices.smtp_host"),
    "smtp_port": ("465", 465, "notices.smtp_port"),
    "smtp_security": ("tls", "tls", "notices.smtp_security"),
    "smtp_user": ("homing", "homing", "notices.smtp_user"),
    "smtp_password": ("a password", "a password", "notices.smtp_password"),
    "smtp_from": ("homing@h.example", "homing@h.example", "notices.smtp_from"),
    "smtp_ca_file": (__file__, __file__, "notices.smtp_ca_file"),
    "log_level": ("debug", "debug", "telemetry.log_level"),
    "log_format": ("json", "json", "telemetry.log_format"),
    "otel_endpoint": ("http://c.example", "http://c.example", "telemetry.otel_endpoint"),
    "otel_headers": ("a=b", "a=b", "telemetry.otel_headers"),
    "otel_signals": ("logs", ("logs",), "telemetry.otel_signals"),
    "otel_trace_share": ("0.5", 0.5, "telemetry.otel_trace_share"),
}


@pytest.mark.parametrize("source", ["environment", "file", "flag"])
@pytest.mark.parametrize("key", GIVEN)
def test_every_key_is_taken_from_every_source_into_its_group(key: str, source: str) -> None:
    text, value, place = GIVEN[key]
    environ = {"HOMING_DATABASE_URL": "postgresql://h/db"}  # for roles
    environ["HOMING_SMTP_FROM"] = "other@h.example"  # for smtp_host
    environ["HOMING_CLIENT_CERTIFICATE_FILE"] = sys.executable  # for client_key_file
    environ["HOMING_CLIENT_KEY_FILE"] = sys.executable  # for client_certificate_file
    environ["HOMING_PROXY_NETWORKS"] = "10.0.0.1/32"  # for proxy_user_header
    if source == "file":
        toml = list(value) if isinstance(value, tuple) else value
        Path("homing.toml").write_text(f"{key} = {json.dumps(toml)}\n")
        environ.pop(f"HOMING_{key.upper()}", None)
    if source == "environment":
        environ[f"HOMING_{key.upper()}"] = text
    settings = load_settings({key: text} if source == "flag" else {}, environ=environ)
    assert attrgetter(place)(settings) == value
    assert value != attrgetter(place)(Settings())
    assert attrgetter(place)(Settings.of(**{key: value})) == value


def test_the_table_lists_every_key() -> None:
    assert {it.name for it in settings_table()} == set(GIVEN)
    assert [it.env for it in settings_table()] == [
        f"HOMING_{it.name.upper()}" for it in settings_table()
    ]


@pytest.mark.parametrize(
    ("variable", "value", "meant"),
    [
        ("HOMING_FRESH_SLOT", "1", "HOMING_FRESH_SLOTS"),
        ("HOMING_DATABASE", "postgresql://h/db", "HOMING_DATABASE_URL"),
        ("HOMING_ADMINKEY", "a-key", "HOMING_ADMIN_KEY"),
        ("HOMING_CONFIGS", "x.toml", "HOMING_CONFIG"),
        ("HOMING_SMTP_PROT", "25", "HOMING_SMTP_PORT"),
        ("HOMING_PORT", "8700", "HOMING_LISTEN"),
        ("HOMING_HOST", "0.0.0.0", "HOMING_LISTEN"),
    ],
)
def test_a_misspelt_variable_stops_the_start_with_a_suggestion(
    variable: str, value: str, meant: str
) -> None:
    assert wrong(**{variable: value}) == (
        f"{variable} (from the environment) is not the name of a setting. Did you mean {meant}?"
    )


def test_an_unknown_variable_that_resembles_none_is_named() -> None:
    told = wrong(HOMING_COLOUR="red")
    assert told == "HOMING_COLOUR (from the environment) is not the name of a setting."


def test_an_unknown_key_in_the_file_is_named_with_the_file() -> None:
    assert wrong("colour = 1") == "colour (from homing.toml) is not the name of a setting."
    told = wrong("fresh-slots = 1")
    assert told.endswith("is not the name of a setting. Did you mean fresh_slots?")


INJECTED = {  # by Kubernetes, for services with the names homing, homing-api and homing-smtp
    "HOMING_SERVICE_HOST": "10.0.0.1",
    "HOMING_SERVICE_PORT": "8700",
    "HOMING_SERVICE_PORT_HTTP": "8700",
    "HOMING_PORT": "tcp://10.0.0.1:8700",
    "HOMING_PORT_8700_TCP": "tcp://10.0.0.1:8700",
    "HOMING_PORT_8700_TCP_PROTO": "tcp",
    "HOMING_PORT_8700_TCP_PORT": "8700",
    "HOMING_PORT_8700_TCP_ADDR": "10.0.0.1",
    "HOMING_API_SERVICE_HOST": "fd00::1",
    "HOMING_API_SERVICE_PORT": "80",
    "HOMING_API_PORT": "tcp://[fd00::1]:80",
    "HOMING_API_PORT_80_TCP_ADDR": "fd00::1",
    "HOMING_API_PORT_53_UDP": "udp://[fd00::1]:53",
    "HOMING_SMTP_PORT": "tcp://10.0.0.2:25",
    "HOMING_SERVER_PORT": "tcp://10.0.0.3:80",
}


def test_variables_that_kubernetes_injects_are_ignored_and_listed() -> None:
    environ = {**INJECTED, "HOMING_FRESH_SLOTS": "100"}
    assert load_settings(environ=environ) == Settings.of(fresh_slots=100)
    assert ignored_variables(environ) == tuple(sorted(INJECTED))


@pytest.mark.parametrize("variable", INJECTED)
def test_the_name_of_an_injected_variable_with_another_value_is_not_ignored(variable: str) -> None:
    assert variable in wrong(**{variable: "something else"})


@pytest.mark.parametrize(
    ("name", "value", "range_"),
    [
        ("FRESH_SLOTS", "0", "1 to 65536 slots"),
        ("FRESH_SLOTS", "many", "1 to 65536 slots"),
        ("GRACE_MS", "600001", "0 to 600000 ms"),
        ("ALLOW_LOOPBACK", "perhaps", "true or false"),
        ("LEASE_MS", "900", "1500 to 120000 ms"),
        ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("WRITER", "magic", "one of process, thread, inline"),
        ("RETENTION_DAYS", "0", "1 to 3650 days"),
        ("POLICY", "never", "one of workfront, workfront-chained, standard-webhooks, once"),
    ],
)
def test_what_is_out_of_range_is_told_with_value_source_and_range(
    name: str, value: str, range_: str
) -> None:
    told = wrong(**{f"HOMING_{name}": value})
    assert told == f"{name.lower()} = '{value}' (from HOMING_{name}) must be {range_}."


def test_a_file_is_read_strictly() -> None:
    assert "fresh_slots = '5'" in wrong("fresh_slots = '5'")
    assert "allow_loopback = 1" in wrong("allow_loopback = 1")
    assert "is not TOML" in wrong("= 1")


def test_limits_know_each_other() -> None:
    told = wrong(HOMING_RETRY_SLOTS="8")
    assert told.startswith("endpoint_slots = 16 (from its default) must be 1 to 8 slots")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("data.a,invoice.id", "paths like data.invoice.id"),
        ("data", "paths like data.invoice.id"),
        ("data.a:b", "without spaces, colons and commas"),
        ("data.a,data.b,data.a", "data.a is listed twice"),
        (",".join(f"data.f{n}" for n in range(9)), "must be at most 8 paths, not 9."),
    ],
)
def test_a_bad_or_ninth_payload_field_stops_the_start(fields: str, reason: str) -> None:
    told = wrong(HOMING_SEARCH_FIELDS=fields)
    assert told.startswith("search_fields = (")
    assert "(from HOMING_SEARCH_FIELDS) must be at most 8" in told
    assert reason in told


def test_secrets_are_not_repeated() -> None:
    assert "short" not in wrong(HOMING_ADMIN_KEY="short")
    assert "pw" not in wrong(HOMING_DATABASE_URL="mysql://u:pw@h/db")
    settings = load_settings(environ={"HOMING_ADMIN_KEY": "a-key-of-some-length"})
    assert "a-key" not in repr(settings)


def test_a_ca_file_must_be_there() -> None:
    assert "a file that is there" in wrong(HOMING_CA_FILE="ca.pem")


def test_the_handshake_of_cloudevents_needs_the_name_of_this_installation() -> None:
    told = wrong(HOMING_VERIFICATION="cloudevents")
    assert "HOMING_PUBLIC_URL" in told or "public_url" in told
    environ = {"HOMING_VERIFICATION": "cloudevents", "HOMING_PUBLIC_URL": "https://h.example:81/x"}
    assert load_settings(environ=environ).notices.origin == "h.example"


# --- tables ---------------------------------------------------------------------------------


def test_policies_of_ones_own_join_the_presets() -> None:
    Path("homing.toml").write_text(
        """
        policy = "patient"
        [policies.patient]
        base_ms = 1000
        retries = 3
        [policies.single]
        retries = 0
        [policies.empty]
        delays_ms = []
        window_ms = 5000
        [policies.short]
        delays_ms = [1000, 1000]
        anchor = "previous_failure"
        window_ms = 60000
        jitter = 0.5
        deadline_ms = 2000
        on_gone = "deactivate"
        retry_after = "ignore"
        """
    )
    settings = load_settings(environ={})
    patient, short = settings.delivery.schedules["patient"], settings.delivery.schedules["short"]
    assert patient.delays_ms == (1000, 3000, 7000)
    assert (patient.window_ms, patient.anchor) == (7000, Anchor.FIRST_FAILURE)
    assert (short.window_ms, short.jitter, short.deadline_ms) == (60_000, 0.5, 2_000)
    assert (short.on_gone, patient.on_gone) == (OnGone.DEACTIVATE, OnGone.RETRY)
    assert {it.on_gone for it in PRESETS.values()} == {OnGone.RETRY}
    assert (short.retry_after, patient.retry_after) == (OnRetryAfter.IGNORE, OnRetryAfter.OBEY)
    assert {it.retry_after for it in PRESETS.values()} == {OnRetryAfter.OBEY}
    single, empty = settings.delivery.schedules["single"], settings.delivery.schedules["empty"]
    assert (single.delays_ms, empty.delays_ms, empty.window_ms) == ((), (), 5_000)
    assert {"workfront", "once"} <= settings.delivery.schedules.keys()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("base_ms = 1", "give either"),
        ("delays_ms = [1]\nretries = 1", "give either"),
        ("delays_ms = [2, 1]", "must rise"),
        ("delays_ms = [2]\nwindow_ms = 1", "window_ms"),
        ("delays_ms = [2]\ncolour = 1", "unknown field"),
        ("delays_ms = [2]\ndeadline_ms = 1", "deadline_ms"),
        ("base_ms = 1\nretries = 4000", "retries must be 0 to 40"),
        ("delays_ms = [2]\non_gone = 'drop'", "on_gone"),
        ("delays_ms = [2]\nretry_after = 'never'", "retry_after"),
    ],
)
def test_a_wrong_policy_stops_the_start(body: str, reason: str) -> None:
    told = wrong(f"[policies.own]\n{body}\n")
    assert told.startswith("policies.own (from homing.toml)")
    assert reason in told


def test_a_preset_keeps_its_meaning() -> None:
    assert "a preset has this name" in wrong("[policies.workfront]\ndelays_ms = [1]")
    assert "its name must be" in wrong('[policies."A B"]\ndelays_ms = [1]')


def test_health_rules_belong_to_the_installation_and_differ_per_tenant() -> None:
    Path("homing.toml").write_text(
        """
        [health]
        failure_percent = 50
        [tenants.acme]
        policy = "standard-webhooks"
        retention_days = 7
        [tenants.acme.health]
        consecutive_disable = 10
        """
    )
    settings = load_settings(environ={})
    assert settings.delivery.health == HealthRules(failure_percent=50)
    expected = HealthRules(failure_percent=50, consecutive_disable=10)
    assert settings.tenants.health == {"acme": expected}
    assert settings.tenants.policies == {"acme": "standard-webhooks"}
    assert settings.tenants.retention_ms == {"acme": 7 * 86_400_000}


def test_a_table_of_health_rules_may_begin_with_a_preset() -> None:
    Path("homing.toml").write_text(
        """
        [health]
        preset = "workfront-faq"
        probe_every_ms = 60_000
        [tenants.acme.health]
        consecutive_disable = 10
        [tenants.bolt.health]
        preset = "workfront"
        """
    )
    settings = load_settings(environ={})
    expected = HealthRules(
        consecutive_freeze=1_999, freeze_after_ms=7 * 86_400_000, probe_every_ms=60_000
    )
    assert settings.delivery.health == expected
    assert settings.tenants.health == {
        "acme": replace(expected, consecutive_disable=10),
        "bolt": HealthRules(),
    }


def test_a_tenant_has_fair_groups_of_its_own_or_none() -> None:
    Path("homing.toml").write_text(
        """
        fair_by = "data.userId"
        [tenants.acme]
        fair_by = "data.actor.id"
        [tenants.bolt]
        fair_by = ""
        """
    )
    options = engine_options(load_settings(environ={}))
    assert [options.fair_by_of(it).path for it in ("default", "acme", "bolt")] == [
        "data.userId",
        "data.actor.id",
        "",
    ]
    assert options.is_fair
    assert not engine_options(Settings()).is_fair


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[health]\nfailure_percent = 101", "health.failure_percent = 101"),
        ("[health]\nfailure_percent = true", "health.failure_percent = True"),
        ("[health]\ncolour = 1", "health.colour"),
        ("health = 1", "health (from homing.toml): must be a table"),
        ("[tenants.a]\npolicy = 'x'", "tenants.a.policy = 'x'"),
        ("[tenants.a]\nhealth = {probe_every_ms = 1}", "tenants.a.health.probe_every_ms = 1"),
        ("[tenants.'a b']\npolicy = 'x'", "tenants.a b"),
        ("[tenants.a]\nretention_days = 0", "tenants.a"),
        ("[tenants.a]\nretention_days = 3651", "tenants.a"),
        ("[tenants.a]\ncolour = 1", "tenants.a"),
        ("[tenants.a]\nfair_by = 'userId'", "tenants.a.fair_by = 'userId'"),
        ("fair_by = 'userId'", "fair_by = 'userId' (from homing.toml) must be empty, or a path"),
        ("[health]\npreset = 'faq'", "health.preset (from homing.toml): must be one of workfront"),
        ("[health]\npreset = 7", "health.preset"),
    ],
)
def test_wrong_tables_stop_the_start(text: str, told: str) -> None:
    assert wrong(text).startswith(told)


def test_where_it_may_connect_is_a_list_in_the_file_and_commas_elsewhere() -> None:
    Path("homing.toml").write_text('allow_networks = ["10.0.0.0/8", "fd00::/8"]\n')
    environ = {
        "HOMING_ALLOW_HOSTS": "Hooks.Internal, *.svc.local,",
        "HOMING_ALLOW_PORTS": "8000-8099",
    }
    reach = load_settings({"allow_loopback": True}, environ=environ).reach.rules()
    assert [str(one) for one in reach.networks] == ["10.0.0.0/8", "fd00::/8"]
    assert reach.hosts == ("hooks.internal", "*.svc.local")
    assert reach.ports == ((8000, 8099),)
    assert (reach.loopback, reach.metadata) == (True, False)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ALLOW_NETWORKS", "10.0.0.1/8", "has host bits set"),
        ("ALLOW_NETWORKS", "private", "a list of networks"),
        ("METRICS_NETWORKS", "10.0.0.1/8", "has host bits set"),
        ("METRICS_NETWORKS", "localhost", "a list of networks"),
        ("ALLOW_HOSTS", "a b", "whitespace"),
        ("ALLOW_HOSTS", "a.example:80/x", "without port and path"),
        ("ALLOW_HOSTS", "http://a.example", "a list of names"),
        ("ALLOW_PORTS", "0", "from 1 to 65535 (not 0)"),
        ("ALLOW_PORTS", "90-80", "from 1 to 65535 (not 90-80)"),
        ("DENY_PORTS", "ssh", "(not ssh)"),
        ("DENY_PORTS", "1-70000", "(not 1-70000)"),
        ("EGRESS_DIRECT_HOSTS", "a.example:80/x", "without port and path"),
        ("EGRESS_SOURCE_ADDRESSES", "eth0", "a list of IP addresses (not eth0)"),
        ("EGRESS_SOURCE_ADDRESSES", "10.0.0.1, 10.0.0.2", "at most one IPv4 and one IPv6"),
        ("EGRESS_ADDRESSES", "10.0.0.1/8", "has host bits set"),
    ],
)
def test_a_wrong_place_to_connect_to_stops_the_start(name: str, value: str, said: str) -> None:
    told = wrong(**{f"HOMING_{name}": value})
    assert told.startswith(f"{name.lower()} = (")
    assert said in told


@pytest.mark.parametrize(
    "value",
    [
        "proxy:3128",
        "https://proxy:3128",
        "http://",
        "http://p:99999",
        "http://p/path",
        "socks5://p",
    ],
)
def test_a_proxy_that_cannot_be_one_stops_the_start_and_is_not_repeated(value: str) -> None:
    told = wrong(HOMING_EGRESS_PROXY=value)
    assert told.startswith("egress_proxy = **** (from HOMING_EGRESS_PROXY) must be empty, or http:")


def test_the_parts_of_a_proxy() -> None:
    environ = {
        "HOMING_EGRESS_PROXY": "http://us%40er:p%3Aw@Proxy.example",
        "HOMING_EGRESS_DIRECT_HOSTS": "*.Inner.example",
    }
    proxy = load_settings(environ=environ).egress.proxy()
    assert proxy is not None
    assert (proxy.host, proxy.port) == ("proxy.example", 3128)
    assert (proxy.user, proxy.password) == ("us@er", "p:w")
    assert not proxy.covers("a.inner.example")
    assert proxy.covers("inner.example")
    assert "p:w" not in repr(proxy)


def test_a_client_certificate_and_its_key_are_given_together_and_are_there(tmp_path: Path) -> None:
    own = {"HOMING_CLIENT_CERTIFICATE_FILE": __file__}
    assert "belong together" in wrong(**own)
    assert "a file that is there" in wrong(**own, HOMING_CLIENT_KEY_FILE="/no/such/file")
    file = tmp_path / "homing.toml"
    for table, said in (
        (f'client_certificate_file = "{__file__}"', "acme.client_key_file"),
        ('ca_file = "/no/such/file"', "must be a file that is there"),
    ):
        file.write_text(f"[tenants.acme]\n{table}\n")
        with pytest.raises(BadSetting, match=said):
            load_settings(config=str(file), environ={})
    file.write_text(f'[tenants.acme]\nca_file = "{__file__}"\n')
    found = load_settings(config=str(file), environ={}).tenants.identities
    assert found == {"acme": IdentityPaths(authorities=__file__)}


def test_a_key_with_a_newline_at_its_end_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('admin_key = "a-key-of-some-length\\n"\n')
    with pytest.raises(BadSetting, match="admin_key"):
        load_settings(config=str(file), environ={})


def test_an_smtp_server_needs_a_sender_and_a_password_needs_encryption() -> None:
    assert "smtp_from" in wrong(HOMING_SMTP_HOST="mail.example")
    unsafe = {"HOMING_SMTP_USER": "u", "HOMING_SMTP_SECURITY": "none"}
    assert "starttls or tls" in wrong(**unsafe)
    assert "smtp_ca_file" in wrong(HOMING_SMTP_CA_FILE="/no/such/file")
    password = {"HOMING_SMTP_PASSWORD": "hidden-text"}
    settings = load_settings(environ=password)
    shown = [it.shown(settings) for it in settings_table() if it.name == "smtp_password"]
    assert shown == ["****"]


def test_email_needs_a_server_a_sender_and_a_public_url() -> None:
    settings = load_settings(environ={})
    assert "smtp_host, smtp_from, public_url not set" in settings.notices.mail_problem
    environ = {
        "HOMING_SMTP_HOST": "mail.example",
        "HOMING_SMTP_FROM": "homing@h.example",
        "HOMING_PUBLIC_URL": "https://h.example/homing/",
    }
    assert load_settings(environ=environ).notices.mail_problem == ""
    assert "HOMING_PUBLIC_URL" in wrong(HOMING_PUBLIC_URL="h.example")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"PROXY_USER_HEADER": "Remote-User"}, "proxy_networks"),
        ({"PROXY_USER_HEADER": "Cookie", "PROXY_NETWORKS": "10.0.0.7/32"}, "proxy_user_header"),
        ({"PROXY_USER_HEADER": "no header", "PROXY_NETWORKS": "10.0.0.7/32"}, "proxy_user_header"),
        ({"PROXY_NETWORKS": "the proxy"}, "proxy_networks"),
        ({"PEOPLE": "ada"}, "people"),
        ({"PEOPLE": "ada=manager"}, "people"),
        ({"PEOPLE": "ada=admin:acme"}, "people"),
    ],
)
def test_settings_of_people_that_would_let_in_the_wrong_ones_stop_the_start(
    given: dict[str, str], name: str
) -> None:
    message = wrong(**{f"HOMING_{key}": value for key, value in given.items()})
    assert message.startswith(f"{name} = ")


@pytest.mark.parametrize("value", ["5", "64-2112", "9-3", "a-b", "-1-4"])
def test_node_numbers_that_are_not_possible_stop_the_start(value: str) -> None:
    assert "node_numbers" in wrong(HOMING_NODE_NUMBERS=value)
