"""The only source of randomness: a generator for each (seed, purpose, keys).

Keys are a round, a client, a visit: things with an identity, never a position or an order of arrival. So a draw does
not depend on the engine, on the number of workers or on how often the run was interrupted.
"""

import zlib

import numpy as np


def sequence(seed: int, purpose: str, *keys: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *keys])


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(sequence(seed, purpose, *keys)))


def integer(seed: int, purpose: str, *keys: int) -> int:
    """A 63-bit number for libraries that want a seed of their own."""
    return int(sequence(seed, purpose, *keys).generate_state(1, np.uint64)[0] >> 1)
