"""Small C kernels for what PyTorch does in several passes over memory, or with more arithmetic than it takes."""

from fedseq.models.kernels.convolution import ConvPoolRelu, available, choose, obstacle, supports
from fedseq.models.kernels.cropping import crop_flip
from fedseq.models.kernels.descent import descend
from fedseq.models.kernels.pair import in_turn
from fedseq.models.kernels.pooling import load, pool_relu

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
