"""What makes the book: the calls of a chapter (`page`, `claims`, `gates`, `plots`), the ledger with
its verdicts, records with their proofs, and what executes and renders chapters (`cde_book.cli`).
"""
