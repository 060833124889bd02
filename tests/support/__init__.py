"""What tests share: launches, hosts, clusters, stacks of versions; nothing here is a test."""
