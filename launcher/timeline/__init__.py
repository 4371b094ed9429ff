"""A run on one timeline: what was asked for, held and used, fused from ledger, progress, telemetry and accounting."""
