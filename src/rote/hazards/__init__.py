"""The rules: every reason why a call is not replayed, with its code and remedy."""
