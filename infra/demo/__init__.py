"""A page to play with: a server on this machine that revises boards, text and pictures."""
