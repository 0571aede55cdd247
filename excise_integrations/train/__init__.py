"""Training: data, detector, exclusion adapter. Never imported at query time."""
