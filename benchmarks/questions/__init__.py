"""What is asked of the cost of things, one module a question; `benchmarks/cost.py` measures them.

A module has `cases(quick)` (what is compared), `series(quick)` (what is done by size) or
`bounds(quick)` (what must fit), or several of them. Nothing is loaded before a case's job is made.
"""
