"""What every reader of OpenFlow bytes says of bytes that are not what the specification promises.

Only the connection that the bytes came by ends; a bug of ours raises something else and stops the process.
"""

from __future__ import annotations


class Malformed(ValueError):
    """A message of a switch breaks the specification. The text says how, and is written to the log."""
