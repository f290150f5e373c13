"""Small C kernels for what PyTorch computes in several passes over memory, or with more arithmetic than needed."""

from fedseq.models.kernels.convolution import ConvPoolRelu, available, choose, in_turn, obstacle, supports
from fedseq.models.kernels.exact import crop_flip, descend, load, pool_relu

__all__ = [
    "ConvPoolRelu",
    "available",
    "choose",
    "crop_flip",
    "descend",
    "in_turn",
    "load",
    "obstacle",
    "pool_relu",
    "supports",
]
