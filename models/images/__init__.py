"""Images as tokens: tokenisers, layouts, edits and their guidance."""
