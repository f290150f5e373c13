"""The ResNet-20 for CIFAR of He et al. 2016, with GroupNorm.

BatchNorm's statistics are those of one client, and averaged they fit nobody; groups of eight channels are normalised by
each picture alone (Hsieh et al. 2020). Shortcuts have no parameters: pictures are halved, new channels are zero.
"""

import torch
from torch import Tensor, nn

from fedseq.models.networks import Shape

GROUP = 8  # channels that are normalised together


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(width // GROUP, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(width // GROUP, width)
        self.stride, self.new_channels = stride, width - channels

    def forward(self, x: Tensor) -> Tensor:
        found = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            shortcut = nn.functional.pad(shortcut, (0, 0, 0, 0, 0, self.new_channels))
        return torch.relu(found + shortcut)


class ResNet20(nn.Module):
    """Three stages of three blocks, 16, 32 and 64 channels wide: 269,722 parameters for CIFAR-10."""

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 16, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(16 // GROUP, 16)
        stages = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        blocks = [
            [ResidualBlock(*first), *(ResidualBlock(first[1], first[1], 1) for _ in range(2))] for first in stages
        ]
        self.blocks = nn.Sequential(*(block for stage in blocks for block in stage))
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.norm(self.conv(x))))
        return self.fc(x.mean((2, 3)))
