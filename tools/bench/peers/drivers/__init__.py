"""One program for each queue, all with the protocol of protocol.py. They share no code with the service."""
