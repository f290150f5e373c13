"""Clients like those of the paper's CIFAR-10 experiments, with estimates as a pre-trained model would give them."""

import numpy as np

CLIENTS, CLASSES, EXAMPLES = 500, 10, 100
MIN_SAMPLES, MAX_CLIENTS = 800, 11


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def one_class_clients():
    """alpha = 0: label counts and perfect estimates."""
    estimates = np.repeat(np.eye(CLASSES), CLIENTS // CLASSES, axis=0)
    return (estimates * EXAMPLES).astype(int), estimates


def noisy_one_class_clients(rng):
    """alpha = 0 with confidences of 0.5 to 0.99 for the true class."""
    counts, one_hot = one_class_clients()
    peaks = rng.uniform(2.2, 6.8, size=(CLIENTS, 1))
    return counts, softmax(one_hot * peaks + 0.3 * rng.normal(size=one_hot.shape))


def dirichlet_clients(alpha, rng):
    """alpha > 0; logits grow with the proportions, differ between clients and favour some classes."""
    proportions = rng.dirichlet([alpha] * CLASSES, CLIENTS)
    counts = rng.multinomial(EXAMPLES, proportions)
    favour, noise = 0.3 * rng.normal(size=CLASSES), 0.4 * rng.normal(size=counts.shape)
    return counts, softmax(6 * counts / EXAMPLES + favour + noise)
