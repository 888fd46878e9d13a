"""Decoding: the loop, the revision rule, and the decoders it is compared with."""
