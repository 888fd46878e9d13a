"""Results to one HTML page."""
