"""The customer portal: pages in which the users of an application see the webhooks of one tenant.

``app`` checks the session of a request and calls its page; ``pages`` has the pages. They call the
same use cases as the API and the dashboard, with a caller of one tenant, and share their templates,
styles and scripts. They say nothing about the installation or about other tenants.
"""
