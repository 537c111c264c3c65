"""Text in five languages: sentences whose parts are values, and the translations of each."""
