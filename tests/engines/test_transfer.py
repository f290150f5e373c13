"""What is written into a mailbox comes out the same: values, types, layout, and what was one tensor is one tensor."""

import sys
from typing import Any

import pytest
import torch

from fedseq.engines.transfer import Mailbox

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memfd is Linux's")

PICTURES = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5)
MESSAGES: dict[str, Any] = {
    "numbers": torch.linspace(0, 1, 7),
    "nothing": torch.zeros(0, 3),
    "one number": torch.tensor(2.5, dtype=torch.float64),
    "every second": torch.arange(10)[::2],
    "pictures": PICTURES,
    "pictures, channels last": PICTURES.contiguous(memory_format=torch.channels_last),
    "large": torch.arange(1 << 18, dtype=torch.float32),  # one megabyte: pages of its own
    "a type that numpy has not": torch.ones(3, dtype=torch.bfloat16),
    "with a gradient": torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_tensor_comes_out_as_it_went_in(name: str, copy: bool) -> None:
    mailbox, sent = Mailbox(), MESSAGES[name]
    found = mailbox.read(mailbox.write({"tensor": sent}), copy)["tensor"]
    assert torch.equal(found, sent)
    assert found.dtype is sent.dtype
    assert found.requires_grad == sent.requires_grad
    if sent.dim() == 4:
        assert found.stride() == sent.stride()
    mailbox.close()


def test_one_tensor_stays_one_and_a_copy_outlives_the_next_message() -> None:
    mailbox, shared = Mailbox(), torch.ones(1000)
    first, second = mailbox.read(mailbox.write([shared, shared]), copy=True)
    assert first is second
    mailbox.write([torch.zeros(1000)])
    assert torch.equal(first, shared)
    lying = mailbox.read(mailbox.write([shared]), copy=False)[0]
    mailbox.write([torch.zeros(1000)])
    assert not lying.any()  # it lay in the mailbox
    mailbox.close()


def test_what_lies_there_unchanged_is_not_written_again() -> None:
    mailbox, model, other = Mailbox(), torch.ones(5), torch.full((5,), 2.0)

    def arrives(*tensors: torch.Tensor) -> list[list[float]]:
        return [each.tolist() for each in mailbox.read(mailbox.write(tensors, unchanged=model), copy=True)]

    def spoil() -> None:
        """So that one can see whether it is written again."""
        mailbox.read(mailbox.write((model, other), unchanged=model), copy=False)[0].fill_(7.0)

    assert arrives(model, other) == [[1.0] * 5, [2.0] * 5]
    spoil()
    assert arrives(model, other) == [[7.0] * 5, [2.0] * 5]  # it was not; what stands behind it was
    model.add_(2.0)
    assert arrives(model, other) == [[3.0] * 5, [2.0] * 5]  # another version of it
    spoil()
    assert arrives(other, model) == [[2.0] * 5, [3.0] * 5]  # at another place
    assert arrives(model, other) == [[3.0] * 5, [2.0] * 5]  # something else lay there
    spoil()
    model = model.clone()
    assert arrives(model, other) == [[3.0] * 5, [2.0] * 5]  # another tensor
    mailbox.close()


def test_a_large_copy_keeps_its_pages_as_long_as_anybody_looks_at_them() -> None:
    mailbox, size = Mailbox(), 1 << 18
    copies = [mailbox.read(mailbox.write(torch.full((size,), float(i))), copy=True) for i in range(3)]
    part, address = copies[1][5:10], copies[2].data_ptr()
    del copies
    later = [mailbox.read(mailbox.write(torch.full((size,), 9.0)), copy=True) for _ in range(3)]
    assert part.tolist() == [1.0] * 5
    assert address in {copy.data_ptr() for copy in later}  # what nobody looks at is used again
    mailbox.close()


def test_a_pipe_is_given_a_few_bytes_whatever_is_sent() -> None:
    """More than a pipe holds would block whoever writes to a process that hangs."""
    mailbox = Mailbox()
    assert len(mailbox.write([torch.ones(1) for _ in range(5000)] + ["text" * 100_000])) < 100
    mailbox.close()
