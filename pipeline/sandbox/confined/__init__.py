"""Code that runs inside the sandbox, the candidate and its judge: standard library only."""
