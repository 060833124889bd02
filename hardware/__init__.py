"""Facts of accelerators and nodes, as YAML: each fact with its source."""
