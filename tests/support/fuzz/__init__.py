"""Everything that reads what others have written, and inputs as they should be."""
