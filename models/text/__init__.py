"""Text: tokenizers, prompts and chat templates, and what tokenizer files say about ids."""
