"""The pages: each calls the same use cases as the API, decides nothing, and shows a template."""
