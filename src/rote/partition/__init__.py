"""Which operations go into a segment and which end one, decided by their schemas and operands."""
