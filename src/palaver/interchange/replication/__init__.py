"""Replication: two stores exchange conversations until both have the same, with the same logs."""
