"""Real applications, of SQLAlchemy and of Django: no commit, no event; a commit, one event."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from client.hooks import hook
from homing_client import outbox
from outbox.application import application, libpq
from outbox.houses import House, house


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("house")) as one:
        yield one


class Base(DeclarativeBase):
    """The application's tables."""


class Invoice(Base):
    __tablename__ = "invoice"
    id: Mapped[int] = mapped_column(primary_key=True)
    paid: Mapped[bool]


def pay(session: Session, number: int) -> str:
    """What the application does."""
    session.add(Invoice(id=number, paid=True))
    session.flush()
    return outbox.publish(session, "invoice.paid", {"invoice": number})


def test_a_sqlalchemy_application_publishes_what_it_commits(home: House, postgres_app: str) -> None:
    url = libpq(postgres_app).replace("postgresql:", "postgresql+psycopg:", 1)
    engine = sqlalchemy.create_engine(url)
    Base.metadata.create_all(engine)
    with hook() as receiver:
        home.client.subscribe(receiver.url, ["invoice.*"])
        with Session(engine) as session, session.begin():
            key = pay(session, 17)
        with Session(engine) as session:
            pay(session, 18)
            with pytest.raises(sqlalchemy.exc.IntegrityError):
                pay(session, 17)  # It is there already: all of this is undone.
        with Session(engine) as session:
            nested = pay(session, 19)
            with session.begin_nested() as inner:
                pay(session, 20)
                inner.rollback()
            session.commit()
        engine.dispose()
        assert "Published 2 rows; 0 refused." in home.relay(postgres_app)
        assert "Published 0 rows" in home.relay(postgres_app)
    events = home.events()
    assert events[key] == events[nested] == "invoice.paid"
    assert len(events) == 2
    detail = home.client.event(key)
    assert bytes(detail.data) == b'{"invoice":17}'
    assert len(detail.deliveries) == 1


DJANGO = """
import sys, django
from django.conf import settings
from django.db import IntegrityError, connection, models, transaction
from homing_client import outbox

settings.configure(DATABASES={"default": %r}, USE_TZ=True)
django.setup()


class Invoice(models.Model):
    number = models.IntegerField(unique=True)

    class Meta:
        app_label = "shop"


def pay(number):
    Invoice.objects.create(number=number)
    return outbox.publish(connection, "django.paid", {"invoice": number}, tenant="acme")


with connection.schema_editor() as editor:
    editor.create_model(Invoice)
with transaction.atomic():
    print(pay(1))
try:
    with transaction.atomic():
        pay(2)
        pay(1)
except IntegrityError:
    pass
with transaction.atomic():
    print(pay(3))
    try:
        with transaction.atomic():
            pay(4)
            raise KeyError
    except KeyError:
        pass
try:
    with transaction.atomic():
        outbox.publish(connection, "not a type", 1)
except Exception as error:
    print(type(error).__name__)
"""


def django_database(address: str) -> dict[str, object]:
    if address.startswith("sqlite:"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": address.removeprefix("sqlite:")}
    parts = urlsplit(address)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": query.get("host", parts.hostname),
        "PORT": parts.port or "",
        "OPTIONS": {"options": f"-csearch_path={query['search_path']}"},
    }


def test_a_django_application_publishes_what_it_commits(
    home: House, app: str, tmp_path: Path
) -> None:
    program = tmp_path / "shop.py"
    program.write_text(DJANGO % django_database(app))
    ran = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 0, ran.stderr
    first, second, refused = ran.stdout.split()
    assert refused in {"DataError", "IntegrityError", "InternalError"}
    before = len(list(home.client.events(tenant="acme")))
    assert "Published 2 rows; 0 refused." in home.relay(app)
    with application(app) as one:
        assert one.rows() == []
    events = {event.id for event in home.client.events(tenant="acme")}
    assert {first, second} <= events
    assert len(events) == before + 2
    assert home.client.event(first, tenant="acme").type == "django.paid"
