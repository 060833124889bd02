"""Random faults in real launches: what is drawn, how it is brought about, what must hold then."""
