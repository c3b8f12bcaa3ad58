"""What the chapters run, beside the library: a folder for each part, and above them what parts
share.

`recipes` says what is trained and tested at each profile (`profiles`), `sweeps` trains many arms
with every seed, `estimate` says what a config would cost on GPUs, `leaks` which test documents
training saw; `intervals` and `significance` say how sure a measurement is.
"""
