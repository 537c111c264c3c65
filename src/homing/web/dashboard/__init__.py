"""The dashboard: pages for people, served at ``/`` by the same server as the API.

``app`` checks a request (host, session, role, form token) and calls its page; ``routes`` lists the
pages; a page of ``pages`` calls the same use cases as the API and renders a template.

- A page is a coroutine ``PageRequest → Shown | Response`` in a table ``PAGES`` of its module, with
  the use case that it calls: the roles of that use case are the roles of the page.
- ``request.show("x.html", …)`` renders; ``request.done("Enabled.", to="/endpoints/…")`` responds to
  a form with a redirect, so that a reload does not send the form again.
- Templates extend ``base.html`` and use the macros of ``parts.html`` (badge, confirm, command,
  empty, url, spark, pager). Everything is escaped; there is no inline script and no inline style.
- An element that stays up to date has an id and ``{{ live("the-id", here) }}``: at every tick of
  the live stream, htmx loads the same page again and replaces the element with this id.
- For the keyboard shortcuts, a row has ``data-row="<id>"``, the search field ``data-find`` and a
  replay button ``data-replay``.
- A command that a role may not use is hidden by ``{% if user.may(MANAGERS) %}`` and refused by
  the use case, which also separates tenants.
"""
