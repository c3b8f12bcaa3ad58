"""How training batches are made: clusters of neighbouring pairs, batches packed from them, and the
filter for false negatives (CDE §4.1).
"""
