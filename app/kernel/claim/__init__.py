"""Claims of jobs: statements, cursors, fair shares, limits and waiting callers."""
