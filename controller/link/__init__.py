"""The link between a southbound and the control loop that run in different processes, perhaps on different machines.

In: messages of southbounds, and commands of the control loop, as bytes. Out: the same messages and commands, checked.
Only ``codec``, which converts them, imports msgspec.
"""
