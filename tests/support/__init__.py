"""Cases, fixtures and tools that several tests share."""
