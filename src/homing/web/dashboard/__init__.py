"""The dashboard: pages for people, served at ``/`` beside the API.

``desk`` lets a visit in (host, session, form token, right) and answers; ``routes`` lists the pages;
a page of ``pages`` reads through the ports and the engine as the API does, and shows a template.

- A page is a coroutine ``Visit → Shown | Answer`` in a table ``PAGES`` of its module.
- ``visit.show("x.html", …)`` renders; ``visit.done("Enabled.", to="/endpoints/…")`` answers a form.
- Templates extend ``base.html`` and use the macros of ``parts.html`` (badge, confirm, command,
  empty, url, spark, pager). Everything is escaped; there is no inline script and no inline style.
- A part of a page that stays up to date has an id and ``{{ live("the-id", here) }}``: a tick of
  the stream asks for the same page again and puts the part with this id in its place.
- Rows carry ``data-row="<id>"`` for the keyboard, a search field ``data-search``, a replay button
  ``data-replay``.
- What a role may not do is hidden by ``{% if who.may(Right.MANAGE) %}`` and refused by the
  ``right`` of the page; ``visit.sees(tenant)`` and ``visit.tenant()`` keep tenants apart.
"""
