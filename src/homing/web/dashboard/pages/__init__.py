"""The pages: each calls the same use cases as the API and renders a template."""
