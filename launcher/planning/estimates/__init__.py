"""How much memory and time one candidate needs on a rank: formulas with their sources.

In: sizes of the model, preset, number of ranks. Out: bytes by component, relative step times.
"""
