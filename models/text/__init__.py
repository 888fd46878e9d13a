"""Text as tokens: prompts, chat templates, special ids."""
