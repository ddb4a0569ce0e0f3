"""The one oracle of what the queue promises: what clients and the ledger say of a run, and the rules that judge it.

Storms (tests/races), the state machine (tests/model) and the chaos runs (tools/chaos) hand in what they have. A rule
goes by what is there: without a ledger by what clients were told, with calls in doubt; with one, by both.
"""
