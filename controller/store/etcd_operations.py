"""Names of keys in etcd, and the comparisons and operations of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from controller.store.etcd_v3 import etcd_pb2 as pb

Operations = Sequence[pb.RequestOp]
"""Operations of one request, which etcd carries out together."""


def key(root: bytes, *names: str) -> bytes:
    """Return the key with these names below ``root``."""
    return root + "/".join(names).encode()


def put(name: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=name, value=value, lease=lease))


def delete(name: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=name))


def delete_range(first: bytes, end: bytes) -> pb.RequestOp:
    """Return the deletion of all keys from ``first`` up to, but without, ``end``."""
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=first, range_end=end))


def was_created(name: bytes, revision: int) -> pb.Compare:
    """Return the comparison that is true if the key was created at this revision; 0 means that there is no key."""
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=name, create_revision=revision)


def was_changed(name: bytes, revision: int) -> pb.Compare:
    """Return the comparison that is true if this revision last changed the key; 0 means that there is no key."""
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=name, mod_revision=revision)


def has_value(name: bytes, value: bytes) -> pb.Compare:
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=name, value=value)
