"""``signalbox.torch.join``: announce a PyTorch training job with the traffic of its ranks.

    import signalbox.torch

    signalbox.torch.join(model, job="vision")

Needs PyTorch, which this distribution does not install."""

try:
    import torch.distributed  # noqa: F401
except ImportError as error:
    raise ImportError(f"signalbox.torch needs PyTorch with torch.distributed in this environment: {error}") from error

from signalbox.torch.joining import Job as Job
from signalbox.torch.joining import join as join
