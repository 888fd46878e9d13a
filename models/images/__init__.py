"""Images as tokens: image tokenisers, the layout of image edits in rows, and guidance."""
