"""How routes are served: who calls, what a request says, how each dialect writes."""
