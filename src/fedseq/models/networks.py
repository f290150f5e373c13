"""Networks for pictures and other inputs: plain nn.Modules, built for a shape of input and a number of classes."""

import torch
from torch import Tensor, nn

from fedseq.models.kernels import ConvPoolRelu, in_turn, pool_relu

Shape = tuple[int, ...]


class LeNet5(nn.Module):
    """The LeNet-5 of Hsu et al. 2020: 797,962 parameters for 32x32 colour pictures in 10 classes.

    Max-pooling comes before ReLU: both are monotonic, so the result is the same and there are four times fewer ReLUs.
    """

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        channels, height, width = shape
        self.conv1 = ConvPoolRelu(channels, 64, 5)
        self.conv2 = ConvPoolRelu(64, 64, 5)
        self.fc1 = nn.Linear(64 * _conv_pool_twice(height) * _conv_pool_twice(width), 384)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = in_turn(self.conv1, self.conv2, x)
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def _conv_pool_twice(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2


class SmallCNN(nn.Module):
    """Two 3x3 convolutions, one pooling and one linear layer; fits pictures from 4x4 on."""

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * (height // 2) * (width // 2), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv1(x))
        x = pool_relu(self.conv2(x))
        return self.fc(x.flatten(1))


class MLP(nn.Module):
    """Two hidden layers over the flattened input; fits any shape."""

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        self.fc1 = nn.Linear(torch.Size(shape).numel(), 128)
        self.fc2 = nn.Linear(128, 64)
        self.fc3 = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


class CNN1d(nn.Module):
    """Two convolutions over time, each halved by pooling, and a mean over what is left; fits series from 4 points on.

    The mean makes it indifferent to where in a window something happens, and to how long the window is.
    """

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        channels, _ = shape
        self.conv1 = nn.Conv1d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv1d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(nn.functional.max_pool1d(self.conv1(x), 2))
        x = torch.relu(nn.functional.max_pool1d(self.conv2(x), 2))
        x = torch.relu(self.fc1(x.mean(2)))
        return self.fc2(x)


class GRU(nn.Module):
    """Text: which character comes after those that are given. Characters are numbers, the classes are the same ones."""

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        self.embedding = nn.Embedding(num_classes, 32)
        self.gru = nn.GRU(32, 128, batch_first=True)
        self.fc = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        read, _ = self.gru(self.embedding(x.int()))
        return self.fc(read[:, -1])


GROUP = 8  # channels that the ResNet's GroupNorm normalises together


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(width // GROUP, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(width // GROUP, width)
        self.stride, self.new_channels = stride, width - channels

    def forward(self, x: Tensor) -> Tensor:
        change = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            shortcut = nn.functional.pad(shortcut, (0, 0, 0, 0, 0, self.new_channels))
        return torch.relu(change + shortcut)


class ResNet20(nn.Module):
    """The ResNet-20 for CIFAR of He et al. 2016, with GroupNorm: 269,722 parameters for CIFAR-10.

    Three stages of three blocks are 16, 32 and 64 channels wide. BatchNorm's statistics are those of one client, and
    their average fits nobody; groups of eight channels are normalised by each picture alone (Hsieh et al. 2020).
    Shortcuts have no parameters: pictures are halved, new channels are zero.
    """

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
