"""How answers, programs and pictures are judged."""
