"""``signalbox.torch.join``: a PyTorch training program announces its job, with what its ranks send.

    import signalbox.torch

    signalbox.torch.join(model, job="vision")

Needs PyTorch, which the distribution does not bring.
"""

try:
    import torch.distributed  # noqa: F401
except ImportError as error:
    raise ImportError(f"signalbox.torch needs PyTorch with torch.distributed in this environment: {error}") from error

from signalbox.torch.joining import Job as Job
from signalbox.torch.joining import join as join
