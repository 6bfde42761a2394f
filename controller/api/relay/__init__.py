"""Stands before the gRPC server: accepts the connections of clients and passes their bytes on to its private sockets.

gRPC itself limits neither the connections of a client nor the bytes that it sends, and does not know which of its
connections to end when there are too many. What is ended here never reaches gRPC. The bytes pass in a process apart
(``accepting``, ``passing``), so that clients do not share an interpreter with the control loop; the API's thread
(``relay``) decides which connections may stay (``connections``).
"""
