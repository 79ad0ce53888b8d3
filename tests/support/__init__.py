"""What several tests share: cases, fixtures and tools; no test itself."""
