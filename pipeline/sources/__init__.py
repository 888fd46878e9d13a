"""Clean sequences and their editable positions, one source per file."""
