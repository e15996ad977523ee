"""The runtime: a call is traced, recorded and replayed. Each folder is a room."""
