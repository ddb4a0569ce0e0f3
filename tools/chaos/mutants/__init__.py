"""The product with one promise broken, as patches; and the checks that must find each: a check that finds none is none.

A patch applies to a copy of the tree, and only there: the product has no switch for it. It begins with a header:

    Breaks: what, in words

    Check: the id of a test, or a module for python -m and its arguments
    Says: a regular expression; a line of the failure matches it, or the check has failed for a reason of its own
    Within: how many seconds the check may take

The first check is a test that takes seconds. Others, which take longer, may follow: another test, or a run of the chaos
harness, whose checker finds the mutant in what clients were told.
"""
