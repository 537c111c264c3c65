"""The pages: each reads through the same ports as the API, decides nothing, and shows."""
