"""How one input of each kind is read: a request to a start state, and states back to people."""
