"""The link between a southbound and the control loop that run in different processes, perhaps on different machines.

The link carries messages of southbounds and commands of the control loop as checked bytes. Only ``codec``, which
converts messages and commands, imports msgspec.
"""
